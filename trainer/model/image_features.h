// SPDX-License-Identifier: Apache-2.0
// From pictures to rows of the decoder: the tower, the positions of it that are used, the projector.
//
// Of the pictures of a micro-batch each rank of a group computes a contiguous part, by part_of; then all have the features of
// all. In backward each has gradients of the features at its own rows; their sum goes back to the rank that made the feature. A
// micro-batch without pictures makes the same calls with nothing in them.
#pragma once

#include "trainer/model/micro_batch.h"
#include "trainer/model/row_plan.h"
#include "trainer/model/vision.h"

namespace mm::model {

template <class T>
class ImageFeatures {
 public:
  struct Saved {
    typename VisionTower<T>::Saved tower;
    int64_t rows = 0;  // of features, of this rank's pictures
    tensor::Buffer<T> selected, projected, activated, features;
  };
  // `context` is the tower's own; `share` are the ranks that the pictures are dealt out to, null where this one has all.
  ImageFeatures(const Context<T>& context, comm::Comm* share, const VlmConfig& config, bool recompute);
  bool trained() const { return trained_; }
  Saved saved() const;
  // Features [images * positions_per_image, hidden of the decoder], valid until the next forward into `saved`.
  const T* forward(const MicroBatch& batch, Saved& saved);
  // gradient [held rows, hidden] of the decoder's input.
  void backward(const MicroBatch& batch, const RowPlan& plan, const T* gradient, Saved& saved);

 private:
  comm::Range pictures(const MicroBatch& batch) const;
  std::vector<int64_t> shares(const MicroBatch& batch) const;  // bounds, in elements, of each rank's features
  void select(const T* hidden, T* to, int64_t images) const;
  void select_backward(const T* from, T* to, int64_t images) const;

  Context<T> context_;
  comm::Comm* share_;
  VisionTower<T> tower_;
  bool trained_ = false;
  int64_t per_image_, hidden_;
  Linear<T> projector1_, projector2_;
  tensor::Buffer<T> dfeatures_, dactivated_, dselected_, dtower_;
};

extern template class ImageFeatures<float>;
extern template class ImageFeatures<double>;

}  // namespace mm::model
