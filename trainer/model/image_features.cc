// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/image_features.h"

#include <algorithm>
#include <stdexcept>

namespace mm::model {

template <class T>
ImageFeatures<T>::ImageFeatures(const Context<T>& context, const Makers& makers, bool makes, const VlmConfig& config,
                                bool recompute)
    : makers_(makers), shape_(config), hidden_(config.text.hidden), trained_(makers.trained) {
  if (makes) maker_.emplace(context, config, recompute);
  if (makers.replicas == 0) trained_ = maker_->trained();
}

template <class T>
typename ImageFeatures<T>::Saved ImageFeatures<T>::saved() const {
  Saved saved;
  if (maker_) saved.made = maker_->saved();
  return saved;
}

// Of this rank.
template <class T>
comm::Range ImageFeatures<T>::pictures(const comm::Comm* group, const MicroBatch& batch) const {
  if (!group) return {0, batch.images};
  if (makers_.replicas == 0) return comm::part_of(batch.images, group->rank(), group->size());
  if (group->rank() < makers_.first) return {};
  return comm::part_of(batch.images, (group->rank() - makers_.first) / makers_.tp, makers_.replicas);
}

template <class T>
void ImageFeatures<T>::deal(const comm::Comm* group, const MicroBatch& batch) {
  bounds_.assign(static_cast<size_t>(makers_.first) + 1, 0);
  const int replicas = makers_.replicas > 0 ? makers_.replicas : group ? group->size() : 1;
  for (int r = 0; r < replicas; ++r) {
    const comm::Range part = comm::part_of(batch.images, r, replicas);
    for (int t = 0; t < makers_.tp; ++t)
      bounds_.push_back((part.begin * shape_.per_image + shape_.held(part.size(), t, makers_.tp).end) * hidden_);
  }
}

// Of the features, those that this rank makes.
template <class T>
T* ImageFeatures<T>::own(const comm::Comm* group, Saved& saved) const {
  return saved.features.get() + bounds_[static_cast<size_t>(group ? group->rank() : 0)];
}

template <class T>
void ImageFeatures<T>::make(const comm::Comm* group, const MicroBatch& batch, Saved& saved) {
  saved.moving.wait();
  deal(group, batch);
  saved.features.need(bounds_.back());
  if (!maker_) return;
  const comm::Range mine = pictures(group, batch);
  if (mine.begin < batch.first_picture || mine.end > batch.first_picture + batch.pictures())
    throw std::logic_error("model: the pictures of a micro-batch are not where the tower runs");
  const uint8_t* pixels = batch.pixels.data() + (mine.begin - batch.first_picture) * batch.picture_bytes;
  maker_->forward(pixels, mine.size(), saved.made, own(group, saved));
}

template <class T>
void ImageFeatures<T>::begin_send(comm::Comm* group, const MicroBatch& batch, Saved& saved) {
  if (!group) return;
  deal(group, batch);
  saved.moving = group->begin_all_gather(saved.features.get(), std::span<const int64_t>(bounds_));
}

template <class T>
const T* ImageFeatures<T>::forward(comm::Comm* group, const MicroBatch& batch, Saved& saved) {
  make(group, batch, saved);
  begin_send(group, batch, saved);
  saved.moving.wait();
  return saved.features.get();
}

// Features are not needed any more where their gradients come.
template <class T>
T* ImageFeatures<T>::no_gradients(const comm::Comm* group, const MicroBatch& batch, Saved& saved) {
  saved.moving.wait();
  deal(group, batch);
  std::fill_n(saved.features.get(), bounds_.back(), T(0));
  return saved.features.get();
}

template <class T>
void ImageFeatures<T>::begin_sum(comm::Comm* group, Saved& saved) {
  if (group) saved.moving = group->begin_reduce_scatter(saved.features.get(), std::span<const int64_t>(bounds_));
}

template <class T>
void ImageFeatures<T>::backward(comm::Comm* group, const MicroBatch& batch, const RowPlan& plan, const T* gradient, Saved& saved) {
  if (!trained_) return;
  T* dfeatures = no_gradients(group, batch, saved);
  for (size_t i = 0; i < plan.features().size(); ++i)
    std::copy_n(gradient + plan.feature_rows()[i] * hidden_, hidden_, dfeatures + plan.features()[i] * hidden_);
  begin_sum(group, saved);
  if (maker_) backward_made(group, batch, saved);
}

template <class T>
void ImageFeatures<T>::take(comm::Comm* group, const MicroBatch& batch, Saved& saved) {
  if (!trained_) return;
  no_gradients(group, batch, saved);
  begin_sum(group, saved);
  saved.moving.wait();
}

template <class T>
void ImageFeatures<T>::backward_made(const comm::Comm* group, const MicroBatch& batch, Saved& saved) {
  if (!trained_) return;
  saved.moving.wait();
  deal(group, batch);
  maker_->backward(pictures(group, batch).size(), own(group, saved), saved.made);
}

template class ImageFeatures<float>;
template class ImageFeatures<double>;

}  // namespace mm::model
