// SPDX-License-Identifier: Apache-2.0
// One layer of a CLIP or SigLIP encoder, of pictures or of text, on packed sequences.
#pragma once

#include <string>
#include <vector>

#include "trainer/model/config.h"
#include "trainer/model/layers.h"
#include "trainer/ops/attention.h"
#include "trainer/tensor/buffer.h"

namespace mm::model {

// The rows that an encoder works on, and which of them this tensor-parallel rank holds between products.
struct EncoderRows {
  std::vector<int64_t> bounds;         // [tp + 1]
  std::vector<ops::Segment> segments;  // whole sequences
  bool causal = false;

  void make(std::span<const int64_t> starts, int tp);
};

struct EncoderShape {
  int64_t hidden = 0, heads = 0;  // of the model
  double eps = 0;
  Activation activation = Activation::gelu;
};

// Working memory of layers that is of no use between two calls.
template <class T>
struct EncoderShared {
  tensor::Buffer<T> gathered, partial, gathered_gradient, dnormed, dwide, dattended, dq, dk, dv;
};

template <class T>
class EncoderLayer {
 public:
  // What forward keeps for backward, beside its input.
  struct Saved {
    tensor::Buffer<T> statistics1, normed1, q, k, v, attended, log_sums, middle, statistics2, normed2, hidden, activated;
  };
  // `name` ends with a dot.
  EncoderLayer(const Context<T>& context, const EncoderShape& shape, const std::string& name, std::string unit);
  const std::string& unit() const { return unit_; }
  // x [held rows, hidden] to y. With `again` only what backward needs is computed, and y is not touched.
  void forward(EncoderShared<T>& shared, const EncoderRows& rows, const T* x, Saved& saved, T* y, bool again = false) const;
  // gradient [held rows, hidden], of y, becomes that of x.
  void backward(EncoderShared<T>& shared, const EncoderRows& rows, const T* x, Saved& saved, T* gradient) const;

 private:
  ops::AttentionShape attention(const EncoderRows& rows) const;

  Context<T> context_;
  EncoderShape shape_;
  std::string unit_;
  LayerNorm<T> norm1_, norm2_;
  Linear<T> query_, key_, value_, out_, up_, down_;
};

// Layers one after another.
template <class T>
class EncoderStack {
 public:
  struct Saved {
    std::vector<tensor::Buffer<T>> inputs;                // of each layer, then the result
    std::vector<typename EncoderLayer<T>::Saved> layers;  // empty where layers are computed again
  };
  // Layers "NAMEencoder.layers.I." of the units "UNIT.I".
  EncoderStack(const Context<T>& context, const EncoderShape& shape, const std::string& name, const std::string& unit,
               int layers, bool recompute);
  Saved saved() const;
  // From saved.inputs.front() to the last of them, [held rows, hidden] each.
  const T* forward(const EncoderRows& rows, Saved& saved);
  void backward(const EncoderRows& rows, Saved& saved, T* gradient);

 private:
  typename EncoderLayer<T>::Saved& layer_saved(Saved& saved, size_t layer) { return recompute_ ? again_ : saved.layers[layer]; }

  Context<T> context_;
  int64_t hidden_;
  bool recompute_;
  std::vector<EncoderLayer<T>> layers_;
  EncoderShared<T> shared_;
  typename EncoderLayer<T>::Saved again_;
};

extern template class EncoderLayer<float>;
extern template class EncoderLayer<double>;
extern template class EncoderStack<float>;
extern template class EncoderStack<double>;

}  // namespace mm::model
