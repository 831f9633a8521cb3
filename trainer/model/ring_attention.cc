// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/ring_attention.h"

#include <algorithm>

namespace mm::model {

template <class T>
int RingAttention<T>::next_tag() {
  return tag_ = (tag_ + 1) % 1000;  // far more than are in flight
}

// While a block is worked on, it is already on its way to the next rank, and the one after it is on its way here.
template <class T>
template <class Visit>
void RingAttention<T>::go_round(const RowPlan& plan, const T* kv, const Visit& visit) {
  const int64_t width = 2 * shape_.kv_heads * shape_.head_size;
  const size_t steps = plan.blocks().size();
  for (size_t step = 0; step < steps; ++step) {
    const RowPlan::Block& block = plan.blocks()[step];
    comm::Pending sent, received;
    T* room = nullptr;
    if (step + 1 < steps) {
      const int64_t coming = plan.rows_of(plan.blocks()[step + 1].cp_rank) * width;
      const int ranks = cp_->size(), tag = next_tag();
      room = arriving_[step % 2].need(coming);
      received = cp_->begin_receive((cp_->rank() + ranks - 1) % ranks, room, coming, tag);
      sent = cp_->begin_send((cp_->rank() + 1) % ranks, kv, plan.rows_of(block.cp_rank) * width, tag);
    }
    visit(step, block, kv);
    received.wait();
    sent.wait();
    kv = room;
  }
}

template <class T>
void RingAttention<T>::forward(const RowPlan& plan, bool labelled, const T* q, const T* kv, T* out, T* log_sums) {
  ops::AttentionShape shape = shape_;
  go_round(plan, kv, [&](size_t step, const RowPlan::Block& block, const T* keys) {
    const T* values = keys + plan.rows_of(block.cp_rank) * shape.kv_heads * shape.head_size;
    shape.segments = labelled ? block.labelled : block.all;
    ops::attention(pool_, shape, q, keys, values, out, log_sums, step > 0);
  });
}

template <class T>
void RingAttention<T>::backward(const RowPlan& plan, bool labelled, const T* q, const T* kv, const T* out, const T* dout,
                                const T* log_sums, T* dq, T* dkv) {
  ops::AttentionShape shape = shape_;
  const int64_t kv_width = shape.kv_heads * shape.head_size;
  const auto elements = [&](const RowPlan::Block& block) { return 2 * plan.rows_of(block.cp_rank) * kv_width; };
  const int64_t queries = labelled ? static_cast<int64_t>(plan.label_rows().size()) : plan.rows();
  std::fill_n(dq, queries * shape.heads * shape.head_size, T(0));  // a key may be seen by no query of this rank
  if (plan.blocks().size() == 1) {
    const RowPlan::Block& block = plan.blocks().front();
    std::fill_n(dkv, elements(block), T(0));
    shape.segments = labelled ? block.labelled : block.all;
    const int64_t values = plan.rows() * kv_width;
    ops::attention_backward(pool_, shape, q, kv, kv + values, out, dout, log_sums, dq, dkv, dkv + values, true);
    return;
  }
  const int ranks = cp_->size(), next = (cp_->rank() + 1) % ranks, before = (cp_->rank() + ranks - 1) % ranks;
  comm::Pending sent[2];
  int tag = 0;  // of the gradients that were sent last
  go_round(plan, kv, [&](size_t step, const RowPlan::Block& block, const T* keys) {
    sent[step % 2].wait();
    T* carried = carried_[step % 2].need(elements(block));
    if (step == 0)
      std::fill_n(carried, elements(block), T(0));
    else
      cp_->begin_receive(before, carried, elements(block), tag).wait();
    shape.segments = labelled ? block.labelled : block.all;
    const int64_t values = plan.rows_of(block.cp_rank) * kv_width;
    ops::attention_backward(pool_, shape, q, keys, keys + values, out, dout, log_sums, dq, carried, carried + values, true);
    tag = next_tag();
    sent[step % 2] = cp_->begin_send(next, carried, elements(block), tag);
  });
  cp_->begin_receive(before, dkv, elements(plan.blocks().front()), tag).wait();
  sent[0].wait();
  sent[1].wait();
}

template class RingAttention<float>;
template class RingAttention<double>;

}  // namespace mm::model
