// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/image_features.h"

#include <algorithm>
#include <stdexcept>

#include "trainer/ops/activation.h"
#include "trainer/ops/rows.h"

namespace mm::model {
namespace {
const std::string unit = "projector";
}

template <class T>
ImageFeatures<T>::ImageFeatures(const Context<T>& context, comm::Comm* share, const VlmConfig& config, bool recompute)
    : context_(context),
      share_(share),
      tower_(context, config.vision, "vision_tower.vision_model.", config.vision_layers, recompute),
      per_image_(config.positions_per_image()),
      hidden_(config.text.hidden),
      projector1_(context, "multi_modal_projector.linear_1"),
      projector2_(context, "multi_modal_projector.linear_2") {
  trained_ = tower_.trained();
  for (const ParamSpec& spec : context.params.specs()) trained_ |= spec.trained() && spec.unit == unit;
}

template <class T>
typename ImageFeatures<T>::Saved ImageFeatures<T>::saved() const {
  Saved saved;
  saved.tower = tower_.saved();
  return saved;
}

template <class T>
comm::Range ImageFeatures<T>::pictures(const MicroBatch& batch) const {
  return share_ ? comm::part_of(batch.images, share_->rank(), share_->size()) : comm::Range{0, batch.images};
}

template <class T>
std::vector<int64_t> ImageFeatures<T>::shares(const MicroBatch& batch) const {
  std::vector<int64_t> bounds = comm::bounds_of(batch.images, share_->size());
  for (int64_t& bound : bounds) bound *= per_image_ * hidden_;
  return bounds;
}

// Copies the positions that the decoder takes; the other way leaves 0 at those that it does not.
template <class T>
void ImageFeatures<T>::select(const T* hidden, T* to, int64_t images) const {
  const int64_t all = tower_.positions(), size = tower_.hidden();
  context_.pool.parallel_for(images, [&](int64_t i) {
    std::copy_n(hidden + (i * all + all - per_image_) * size, per_image_ * size, to + i * per_image_ * size);
  });
}

template <class T>
void ImageFeatures<T>::select_backward(const T* from, T* to, int64_t images) const {
  const int64_t all = tower_.positions(), size = tower_.hidden();
  context_.pool.parallel_for(images, [&](int64_t i) {
    std::fill_n(to + i * all * size, (all - per_image_) * size, T(0));
    std::copy_n(from + i * per_image_ * size, per_image_ * size, to + (i * all + all - per_image_) * size);
  });
}

template <class T>
const T* ImageFeatures<T>::forward(const MicroBatch& batch, Saved& saved) {
  const comm::Range mine = pictures(batch);
  if (mine.begin < batch.first_picture || mine.end > batch.first_picture + batch.pictures())
    throw std::logic_error("model: the pictures of a micro-batch are not where the tower runs");
  const T* hidden = tower_.forward(batch.pixels.data() + (mine.begin - batch.first_picture) * batch.picture_bytes, mine.size(), saved.tower);
  const int64_t rows = saved.rows = mine.size() * per_image_;
  T* chosen = saved.selected.need(rows * tower_.hidden());
  select(hidden, chosen, mine.size());
  UnitHooks& hooks = context_.params.hooks();
  hooks.acquire(unit);
  tensor::ThreadPool& pool = context_.pool;
  projector1_.forward(pool, chosen, nullptr, saved.projected.need(rows * hidden_), rows);
  ops::gelu(pool, ops::Gelu::exact, saved.projected.get(), saved.activated.need(rows * hidden_), rows * hidden_);
  T* features = saved.features.need(batch.images * per_image_ * hidden_);
  projector2_.forward(pool, saved.activated.get(), nullptr, features + mine.begin * per_image_ * hidden_, rows);
  hooks.release(unit);
  if (share_) share_->all_gather(features, std::span<const int64_t>(shares(batch)));
  return features;
}

template <class T>
void ImageFeatures<T>::backward(const MicroBatch& batch, const RowPlan& plan, const T* gradient, Saved& saved) {
  if (!trained_) return;
  const comm::Range mine = pictures(batch);
  const int64_t all = batch.images * per_image_ * hidden_, rows = saved.rows;
  T* dfeatures = dfeatures_.need(all);
  std::fill_n(dfeatures, all, T(0));
  for (size_t i = 0; i < plan.features().size(); ++i)
    std::copy_n(gradient + plan.feature_rows()[i] * hidden_, hidden_, dfeatures + plan.features()[i] * hidden_);
  if (share_) share_->reduce_scatter(dfeatures, std::span<const int64_t>(shares(batch)));
  dfeatures += mine.begin * per_image_ * hidden_;

  UnitHooks& hooks = context_.params.hooks();
  hooks.acquire(unit);
  tensor::ThreadPool& pool = context_.pool;
  T* dactivated = dactivated_.need(rows * hidden_);
  projector2_.backward(pool, saved.activated.get(), dfeatures, dactivated, rows, false);
  ops::gelu_backward(pool, ops::Gelu::exact, saved.projected.get(), dactivated, rows * hidden_);
  T* dselected = tower_.trained() ? dselected_.need(rows * tower_.hidden()) : nullptr;
  projector1_.backward(pool, saved.selected.get(), dactivated, dselected, rows, false);
  hooks.gradient_ready(unit);
  hooks.release(unit);
  if (!tower_.trained()) return;
  T* dhidden = dtower_.need(mine.size() * tower_.positions() * tower_.hidden());
  select_backward(dselected, dhidden, mine.size());
  tower_.backward(saved.tower, dhidden);
}

template class ImageFeatures<float>;
template class ImageFeatures<double>;

}  // namespace mm::model
