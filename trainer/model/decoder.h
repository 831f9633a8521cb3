// SPDX-License-Identifier: Apache-2.0
// The decoder's layers, Llama or Qwen2, on packed sequences: from embedded tokens to the last hidden states, before the final
// norm.
#pragma once

#include <span>
#include <vector>

#include "trainer/model/config.h"
#include "trainer/model/layers.h"
#include "trainer/ops/attention.h"
#include "trainer/ops/rope.h"
#include "trainer/tensor/buffer.h"

namespace mm::model {

template <class T>
class Decoder {
 public:
  Decoder(const TextConfig& config, ParamStore<T>& params, tensor::ThreadPool& pool);
  // Room for the embedded tokens of a forward: [rows, hidden], to be filled by the caller.
  T* input(int64_t rows);
  // Hidden states [rows, hidden] of the sequences [starts[s], starts[s + 1]), kept until the next input().
  const T* forward(std::span<const int64_t> starts);
  // Adds to the parameter gradients; gradient [rows, hidden] becomes the gradient of the input.
  void backward(T* gradient);

 private:
  struct Layer {
    RmsNorm<T> norm1, norm2;
    Linear<T> query, key, value, out, gate, up, down;
    // kept by forward: the input x, then what each op put out; q and k are turned by their positions
    tensor::Buffer<T> x, statistics1, normed1, q, k, v, attended, log_sums, middle, statistics2, normed2, gated, lifted,
        activated;
  };
  void layer_forward(Layer& layer, T* y);
  void layer_backward(Layer& layer, T* gradient);
  ops::AttentionShape attention_shape() const;

  TextConfig config_;
  tensor::ThreadPool& pool_;
  ops::RopeTable<T> rope_;
  std::vector<Layer> layers_;
  int64_t rows_ = 0;
  std::vector<ops::Segment> segments_;
  std::vector<int64_t> positions_;
  tensor::Buffer<T> result_;
  tensor::Buffer<T> wide1_, wide2_, normed_gradient_, dq_, dk_, dv_, dattended_;
};

extern template class Decoder<float>;
extern template class Decoder<double>;

}  // namespace mm::model
