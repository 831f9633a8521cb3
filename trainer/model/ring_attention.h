// SPDX-License-Identifier: Apache-2.0
// Causal attention of packed rows that are dealt out over context-parallel ranks: keys and values go round the ranks as a ring
// (Liu et al. 2023), each rank attends with its queries to the block that it has, and the partial results are merged by the
// logarithms of their sums of exponentials. In backward the blocks go round again, and their gradients with them: after a whole
// round a block's gradient has come home with every rank's part. One rank alone talks to nobody.
#pragma once

#include "trainer/model/layers.h"
#include "trainer/model/row_plan.h"
#include "trainer/tensor/buffer.h"

namespace mm::model {

template <class T>
class RingAttention {
 public:
  // `shape` says heads and their size.
  RingAttention(const Context<T>& context, const ops::AttentionShape& shape)
      : pool_(context.pool), cp_(context.cp), shape_(shape) {}
  // Of the queries that `labelled` chooses from the plan: q and out [queries, heads * head_size], log_sums [queries, heads]. kv
  // holds the keys of the plan's rows, then their values, each [rows, kv_heads * head_size].
  void forward(const RowPlan& plan, bool labelled, const T* q, const T* kv, T* out, T* log_sums);
  // Writes dq and dkv.
  void backward(const RowPlan& plan, bool labelled, const T* q, const T* kv, const T* out, const T* dout, const T* log_sums,
                T* dq, T* dkv);

 private:
  // What of each block in turn is done; kv is the block's.
  template <class Visit>
  void go_round(const RowPlan& plan, const T* kv, const Visit& visit);
  int next_tag();

  tensor::ThreadPool& pool_;
  comm::Comm* cp_;
  ops::AttentionShape shape_;
  int tag_ = 0;
  tensor::Buffer<T> arriving_[2], partial_, partial_sums_, carried_[2];
};

extern template class RingAttention<float>;
extern template class RingAttention<double>;

}  // namespace mm::model
