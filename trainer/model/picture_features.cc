// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/picture_features.h"

#include <algorithm>

#include "trainer/ops/activation.h"
#include "trainer/ops/tiles.h"

namespace mm::model {
namespace {
const std::string unit = "projector";
}

template <class T>
PictureFeatures<T>::PictureFeatures(const Context<T>& context, const VlmConfig& config, bool recompute)
    : context_(context),
      tower_(context, config.vision, "vision_tower.vision_model.", config.vision_layers, recompute),
      shape_(config),
      hidden_(config.text.hidden),
      projector1_(context, "multi_modal_projector.linear_1"),
      projector2_(context, "multi_modal_projector.linear_2") {
  trained_ = tower_.trained();
  for (const ParamSpec& spec : context.params.specs()) trained_ |= spec.trained() && spec.unit == unit;
}

template <class T>
typename PictureFeatures<T>::Saved PictureFeatures<T>::saved() const {
  Saved saved;
  saved.tower = tower_.saved();
  return saved;
}

template <class T>
comm::Range PictureFeatures<T>::held(int64_t images) const {
  return context_.tp ? shape_.held(images, context_.tp->rank(), context_.tp->size())
                     : comm::Range{0, images * shape_.per_image};
}

template <class T>
int64_t PictureFeatures<T>::first_row(int64_t images) const {
  return context_.tp ? comm::part_of(images * shape_.positions, context_.tp->rank(), context_.tp->size()).begin : 0;
}

template <class T>
template <class Body>
void PictureFeatures<T>::for_features(int64_t images, const Body& body) const {
  const comm::Range mine = held(images);
  const int64_t first = first_row(images), skipped = shape_.positions - shape_.per_image;
  ops::for_parts(context_.pool, mine.size(), ops::rows_per_tile(tower_.hidden()), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t feature = mine.begin + i;
      body(i, feature / shape_.per_image * shape_.positions + skipped + feature % shape_.per_image - first);
    }
  });
}

template <class T>
void PictureFeatures<T>::forward(const uint8_t* pixels, int64_t images, Saved& saved, T* features) {
  const T* states = tower_.forward(pixels, images, saved.tower);
  const int64_t rows = held(images).size(), size = tower_.hidden();
  T* chosen = saved.selected.need(rows * size);
  for_features(images, [&](int64_t feature, int64_t row) { std::copy_n(states + row * size, size, chosen + feature * size); });
  UnitHooks& hooks = context_.params.hooks();
  hooks.acquire(unit);
  tensor::ThreadPool& pool = context_.pool;
  projector1_.forward(pool, chosen, nullptr, saved.projected.need(rows * hidden_), rows);
  ops::gelu(pool, ops::Gelu::exact, saved.projected.get(), saved.activated.need(rows * hidden_), rows * hidden_);
  projector2_.forward(pool, saved.activated.get(), nullptr, features, rows);
  hooks.release(unit);
}

template <class T>
void PictureFeatures<T>::backward(int64_t images, const T* dfeatures, Saved& saved) {
  const int64_t rows = held(images).size(), size = tower_.hidden();
  UnitHooks& hooks = context_.params.hooks();
  hooks.acquire(unit);
  tensor::ThreadPool& pool = context_.pool;
  T* dactivated = dactivated_.need(rows * hidden_);
  projector2_.backward(pool, saved.activated.get(), dfeatures, dactivated, rows, false);
  ops::gelu_backward(pool, ops::Gelu::exact, saved.projected.get(), dactivated, rows * hidden_);
  T* dselected = tower_.trained() ? dselected_.need(rows * size) : nullptr;
  projector1_.backward(pool, saved.selected.get(), dactivated, dselected, rows, false);
  hooks.gradient_ready(unit);
  hooks.release(unit);
  if (!tower_.trained()) return;
  const int64_t states = SequenceParallel<T>(context_.tp, saved.tower.rows.bounds).held();
  T* dstates = dtower_.need(states * size);
  std::fill_n(dstates, states * size, T(0));
  for_features(images,
               [&](int64_t feature, int64_t row) { std::copy_n(dselected + feature * size, size, dstates + row * size); });
  tower_.backward(saved.tower, dstates);
}

template class PictureFeatures<float>;
template class PictureFeatures<double>;

}  // namespace mm::model
