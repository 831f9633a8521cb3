// SPDX-License-Identifier: Apache-2.0
// The vision tower, CLIP or SigLIP: patches, positions, and the encoder layers up to the one whose output is used.
#pragma once

#include <span>
#include <vector>

#include "trainer/data/sample.h"
#include "trainer/model/config.h"
#include "trainer/model/layers.h"
#include "trainer/ops/attention.h"
#include "trainer/tensor/buffer.h"

namespace mm::model {

template <class T>
class VisionTower {
 public:
  VisionTower(const VisionConfig& config, int layers, ParamStore<T>& params, tensor::ThreadPool& pool);
  int64_t positions() const { return config_.positions(); }
  bool trained() const { return trained_; }  // some parameter of it is
  // Hidden states [images * positions, hidden]; kept for backward, valid until the next forward.
  const T* forward(std::span<const data::Image* const> images);
  // Adds to the parameter gradients; gradient [images * positions, hidden] is overwritten.
  void backward(T* gradient);

 private:
  struct Layer {
    LayerNorm<T> norm1, norm2;
    Linear<T> query, key, value, out, up, down;
    // kept by forward: the input x, then what each op put out
    tensor::Buffer<T> x, statistics1, normed1, q, k, v, attended, log_sums, middle, statistics2, normed2, hidden, activated;
  };
  void embed(std::span<const data::Image* const> images);
  void embed_backward(T* gradient);
  void layer_forward(Layer& layer, T* y);
  void layer_backward(Layer& layer, T* gradient);

  VisionConfig config_;
  tensor::ThreadPool& pool_;
  bool trained_ = false;
  std::vector<T> pixel_table_;  // [3 * 256], what a channel's byte stands for
  Linear<T> patch_;
  const T *class_token_ = nullptr, *position_ = nullptr;
  T *class_token_gradient_ = nullptr, *position_gradient_ = nullptr;
  LayerNorm<T> pre_norm_;
  std::vector<Layer> layers_;
  int64_t images_ = 0;
  std::vector<ops::Segment> segments_;  // each picture sees itself
  tensor::Buffer<T> patches_, embedded_, pre_statistics_, result_;
  tensor::Buffer<T> wide_, normed_gradient_, dq_, dk_, dv_, dattended_;
};

extern template class VisionTower<float>;
extern template class VisionTower<double>;

}  // namespace mm::model
