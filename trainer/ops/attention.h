// SPDX-License-Identifier: Apache-2.0
// Softmax attention between runs of query rows and runs of key rows. Scores are never kept: backward recomputes them from the
// logarithm of each row's sum of exponentials (Dao et al. 2022), in blocks of query rows, so that memory grows with length, not
// its square. Keys may come in several calls, as they travel around a ring (Liu et al. 2023): each call merges what it finds
// with the result so far, and backward, given the final result, adds what the keys at hand contribute.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/tensor/thread_pool.h"

namespace mm::ops {

// Query rows [q_begin, q_begin + q_rows) see key rows [k_begin, k_begin + k_rows): all of them, or where causal, query i sees
// key j while j <= i + ahead, so that `ahead` is the position of the first query less that of the first key.
struct Segment {
  int64_t sequence = 0;
  int64_t q_begin = 0, q_rows = 0, k_begin = 0, k_rows = 0;
  int64_t ahead = 0;
};

// The segments of one sequence stand together in the list, and share no row with those of another. Inside a sequence the same
// queries may see several runs of keys, and the same keys may be seen by several runs of queries.
struct AttentionShape {
  // Query head h reads key and value head (first_head + h) / group; group 0 stands for heads / kv_heads. A slice of a model's
  // heads may begin and end inside a group.
  int64_t heads = 0, kv_heads = 0, group = 0, first_head = 0;
  int64_t head_size = 0;
  bool causal = false;
  std::span<const Segment> segments;

  int64_t sharing() const { return group > 0 ? group : heads / kv_heads; }
  int64_t kv_head(int64_t head) const { return (first_head + head) / sharing(); }
  // The query heads that read a key head: [head_begin(j), head_begin(j + 1)).
  int64_t head_begin(int64_t kv) const {
    const int64_t begin = kv * sharing() - first_head;
    return begin < 0 ? 0 : begin < heads ? begin : heads;
  }
};

// `segments` becomes those of whole sequences, [starts[s], starts[s + 1]), that see themselves.
void whole_sequences(std::span<const int64_t> starts, std::vector<Segment>& segments);

// q and out [query rows, heads * head_size]; k and v [key rows, kv_heads * head_size]; log_sums [query rows, heads]. Writes the
// rows of the segments' queries; a query that sees no key gets 0 and the logarithm of nothing, minus infinity. With `merge`,
// out and log_sums hold the result for other keys, and become the result for these as well.
template <class T>
void attention(tensor::ThreadPool& pool, const AttentionShape& shape, const T* q, const T* k, const T* v, T* out, T* log_sums,
               bool merge = false);
// out and log_sums are those over all the keys that the queries saw, dout their gradient. Writes dq, dk and dv at the rows of
// the segments; with `accumulate`, adds to them.
template <class T>
void attention_backward(tensor::ThreadPool& pool, const AttentionShape& shape, const T* q, const T* k, const T* v, const T* out,
                        const T* dout, const T* log_sums, T* dq, T* dk, T* dv, bool accumulate = false);

}  // namespace mm::ops
