// SPDX-License-Identifier: Apache-2.0
// One layer of the decoder, Llama or Qwen2. The last layer of a model asks nothing of rows without a label: their keys and
// values are all that it computes of them.
#pragma once

#include "trainer/model/config.h"
#include "trainer/model/layers.h"
#include "trainer/model/ring_attention.h"
#include "trainer/model/row_plan.h"
#include "trainer/ops/rope.h"
#include "trainer/tensor/buffer.h"

namespace mm::model {

// What the layers of a rank share: the rotary table, and working memory that is of no use between two calls.
template <class T>
struct DecoderShared {
  DecoderShared(const Context<T>& context, const TextConfig& config, int layer);  // `layer` is one that the rank has

  ops::RopeTable<T> rope;
  RingAttention<T> attention;
  tensor::Buffer<T> gathered, asking, partial, gathered_gradient, dnormed, dasking, dwide1, dwide2, dattended, dq, dkv;
};

template <class T>
class DecoderLayer {
 public:
  // What forward keeps for backward, beside its input. q and k are turned by their positions.
  struct Saved {
    tensor::Buffer<T> statistics1, normed1, q, kv, attended, log_sums, middle, statistics2, normed2, gated, lifted, activated;
  };
  DecoderLayer(const Context<T>& context, const TextConfig& config, int layer, bool last);
  bool last() const { return last_; }
  const std::string& unit() const { return unit_; }

  // x [held rows, hidden] to y, of the held rows, in the last layer of those with a label. With `again` only
  // what backward needs is computed, and y is not touched.
  void forward(DecoderShared<T>& shared, const RowPlan& plan, const T* x, Saved& saved, T* y, bool again = false) const;
  // dy is overwritten, and may be dx where the layer is not the last.
  void backward(DecoderShared<T>& shared, const RowPlan& plan, const T* x, Saved& saved, T* dy, T* dx) const;

 private:
  Context<T> context_;
  std::string unit_;
  bool last_;
  int64_t hidden_, heads_, kv_heads_;
  RmsNorm<T> norm1_, norm2_;
  Linear<T> query_, key_, value_, out_, gate_, up_, down_;
};

extern template struct DecoderShared<float>;
extern template struct DecoderShared<double>;
extern template class DecoderLayer<float>;
extern template class DecoderLayer<double>;

}  // namespace mm::model
