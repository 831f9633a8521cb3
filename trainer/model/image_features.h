// SPDX-License-Identifier: Apache-2.0
// The features of a micro-batch's pictures on the ranks whose rows they go to, wherever they are made.
//
// The pictures are dealt out by part_of to the makers of a group: to all its ranks, where the tower is on the ranks of the
// first stage, or to ranks of its own, which follow the others in the group and may share a picture's work by tensor
// parallelism. Then all have the features of all. In backward each has gradients of the features at its own rows; their sum
// goes back to the rank that made the feature. A micro-batch without pictures makes the same calls with nothing in them.
//
// Ranks that do both call forward and backward; makers that are apart call the two halves of each, so that they can make
// features before others ask for them.
#pragma once

#include <optional>

#include "trainer/model/micro_batch.h"
#include "trainer/model/picture_features.h"
#include "trainer/model/row_plan.h"

namespace mm::model {

// Which ranks of a group make features: all of them, or replicas x tp ranks from `first` on, tp fastest.
struct Makers {
  int first = 0, replicas = 0, tp = 1;  // replicas 0: every rank of the group is one
  bool trained = true;                  // whether the tower or the projector is; where every rank makes, its store says so
};

template <class T>
class ImageFeatures {
 public:
  struct Saved {
    typename PictureFeatures<T>::Saved made;
    tensor::Buffer<T> features;  // and in backward their gradients
    comm::Pending moving;        // what uses the buffer
  };
  // `context` is that of a maker; `makes`: this rank is one.
  ImageFeatures(const Context<T>& context, const Makers& makers, bool makes, const VlmConfig& config, bool recompute);
  Saved saved() const;
  // Features [images * positions_per_image, hidden of the decoder], valid until the next forward into `saved`. group is null
  // where this rank is alone.
  const T* forward(comm::Comm* group, const MicroBatch& batch, Saved& saved);
  void make(const comm::Comm* group, const MicroBatch& batch, Saved& saved);
  void begin_send(comm::Comm* group, const MicroBatch& batch, Saved& saved);
  // gradient [held rows, hidden] of the decoder's input, and where its features came from. On a rank that makes none it returns
  // before the others have taken them.
  void backward(comm::Comm* group, const MicroBatch& batch, const RowPlan& plan, const T* gradient, Saved& saved);
  void take(comm::Comm* group, const MicroBatch& batch, Saved& saved);
  void backward_made(const comm::Comm* group, const MicroBatch& batch, Saved& saved);

 private:
  comm::Range pictures(const comm::Comm* group, const MicroBatch& batch) const;
  void deal(const comm::Comm* group, const MicroBatch& batch);
  T* own(const comm::Comm* group, Saved& saved) const;
  T* no_gradients(const comm::Comm* group, const MicroBatch& batch, Saved& saved);
  void begin_sum(comm::Comm* group, Saved& saved);

  Makers makers_;
  FeatureShape shape_;
  int64_t hidden_;
  std::optional<PictureFeatures<T>> maker_;
  bool trained_;
  std::vector<int64_t> bounds_;  // in elements, of the features that each rank of the group makes
};

extern template class ImageFeatures<float>;
extern template class ImageFeatures<double>;

}  // namespace mm::model
