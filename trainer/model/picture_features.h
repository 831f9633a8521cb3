// SPDX-License-Identifier: Apache-2.0
// From pictures to rows of the decoder: the tower, the positions of it that are used, the projector.
#pragma once

#include "trainer/model/vision.h"

namespace mm::model {

// Which feature rows of some pictures a tensor-parallel rank makes: those whose hidden states it holds.
struct FeatureShape {
  int64_t positions = 0, per_image = 0;  // of the tower, and the last of them that are used
  FeatureShape() = default;
  explicit FeatureShape(const VlmConfig& config)
      : positions(config.vision.positions()), per_image(config.positions_per_image()) {}
  // Of the first `row` rows of hidden states, how many are used.
  int64_t used(int64_t row) const {
    const int64_t rest = row % positions - (positions - per_image);
    return row / positions * per_image + (rest > 0 ? rest : 0);
  }
  comm::Range held(int64_t images, int tp_rank, int tp) const {
    const comm::Range rows = comm::part_of(images * positions, tp_rank, tp);
    return {used(rows.begin), used(rows.end)};
  }
};

template <class T>
class PictureFeatures {
 public:
  struct Saved {
    typename VisionTower<T>::Saved tower;
    tensor::Buffer<T> selected, projected, activated;
  };
  PictureFeatures(const Context<T>& context, const VlmConfig& config, bool recompute);
  bool trained() const { return trained_; }
  Saved saved() const;
  // The held feature rows, [rows, hidden of the decoder]; pixels [images, edge, edge, 3].
  void forward(const uint8_t* pixels, int64_t images, Saved& saved, T* features);
  // dfeatures: the gradient of the held rows.
  void backward(int64_t images, const T* dfeatures, Saved& saved);

 private:
  comm::Range held(int64_t images) const;
  int64_t first_row(int64_t images) const;  // of the held hidden states
  // Calls body(feature, row), counted from the first held ones.
  template <class Body>
  void for_features(int64_t images, const Body& body) const;

  Context<T> context_;
  VisionTower<T> tower_;
  bool trained_ = false;
  FeatureShape shape_;
  int64_t hidden_;
  Linear<T> projector1_, projector2_;
  tensor::Buffer<T> dactivated_, dselected_, dtower_;
};

extern template class PictureFeatures<float>;
extern template class PictureFeatures<double>;

}  // namespace mm::model
