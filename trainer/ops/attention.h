// SPDX-License-Identifier: Apache-2.0
// Softmax attention inside each of several sequences that lie one after another. Scores are never kept: backward recomputes
// them from the logarithm of each row's sum of exponentials (Dao et al. 2022), in blocks of query rows, so that memory grows
// with length, not its square.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/tensor/thread_pool.h"

namespace mm::ops {

struct AttentionShape {
  int64_t heads = 0, kv_heads = 0;  // kv_heads divides heads; query head h reads key and value head h / (heads / kv_heads)
  int64_t head_size = 0;
  bool causal = false;
  std::span<const int64_t> starts;  // sequence s is rows [starts[s], starts[s + 1])
};

// q and out [rows, heads * head_size]; k and v [rows, kv_heads * head_size]; log_sums [rows, heads] is kept for backward.
template <class T>
void attention(tensor::ThreadPool& pool, const AttentionShape& shape, const T* q, const T* k, const T* v, T* out, T* log_sums);
template <class T>
void attention_backward(tensor::ThreadPool& pool, const AttentionShape& shape, const T* q, const T* k, const T* v, const T* out,
                        const T* dout, const T* log_sums, T* dq, T* dk, T* dv);

}  // namespace mm::ops
