// SPDX-License-Identifier: Apache-2.0
// The vision tower, CLIP or SigLIP: patches, positions, and the encoder layers up to the one whose output is used.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trainer/model/config.h"
#include "trainer/model/encoder_layer.h"
#include "trainer/tensor/buffer.h"

namespace mm::model {

template <class T>
class VisionTower {
 public:
  // What forward keeps for backward.
  struct Saved {
    EncoderRows rows;
    std::vector<int64_t> starts;  // where each picture's positions begin
    tensor::Buffer<T> patches, embedded, pre_statistics;
    typename EncoderStack<T>::Saved layers;
  };
  // `name` is what all parameters' names begin with, and ends with a dot.
  VisionTower(const Context<T>& context, const VisionConfig& config, const std::string& name, int layers, bool recompute);
  int64_t positions() const { return config_.positions(); }
  int64_t hidden() const { return config_.hidden; }
  bool trained() const { return trained_; }  // some parameter of it is
  Saved saved() const;
  // Hidden states of the held ones of all rows [images * positions, hidden]; pixels [images, edge, edge, 3].
  const T* forward(const uint8_t* pixels, int64_t images, Saved& saved);
  // Adds to the parameter gradients; gradient, of the held rows, is overwritten.
  void backward(Saved& saved, T* gradient);

 private:
  // Of the held rows: where they begin, how many, and which patches they are.
  struct Held {
    int64_t begin, rows, first_patch, patches;
  };
  Held held(const Saved& saved) const;
  void embed(const uint8_t* pixels, Saved& saved, T* x);
  void embed_backward(Saved& saved, T* gradient);

  Context<T> context_;
  VisionConfig config_;
  bool trained_ = false;
  std::vector<T> pixel_table_;  // [3 * 256], what a channel's byte stands for
  Linear<T> patch_;
  const T *class_token_ = nullptr, *position_ = nullptr;
  T *class_token_gradient_ = nullptr, *position_gradient_ = nullptr;
  LayerNorm<T> pre_norm_;
  EncoderStack<T> layers_;
  tensor::Buffer<T> patch_rows_;
};

extern template class VisionTower<float>;
extern template class VisionTower<double>;

}  // namespace mm::model
