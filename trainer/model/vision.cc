// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/vision.h"

#include <algorithm>

#include "trainer/ops/rows.h"
#include "trainer/ops/tiles.h"

namespace mm::model {
namespace {

const std::string embed_unit = "vision.embed";

template <class T>
std::vector<T> pixel_table(const VisionConfig& config) {
  std::vector<T> table;
  for (size_t c = 0; c < 3; ++c) {
    const double mean = config.mean[c], deviation = config.deviation[c];
    const bool halves = mean == 0.5 && deviation == 0.5;
    for (int v = 0; v < 256; ++v) table.push_back(static_cast<T>(halves ? v / 127.5 - 1 : (v / 255.0 - mean) / deviation));
  }
  return table;
}

}  // namespace

template <class T>
VisionTower<T>::VisionTower(const Context<T>& context, const VisionConfig& config, const std::string& name, int layers,
                            bool recompute)
    : context_(context),
      config_(config),
      pixel_table_(pixel_table<T>(config)),
      layers_(context, {config.hidden, config.heads, config.eps, config.activation}, name, "vision", layers, recompute) {
  const std::string embeddings = name + "embeddings.";
  for (const ParamSpec& spec : context.params.specs()) trained_ |= spec.trained() && spec.name.starts_with(name);
  patch_ = Linear<T>(context, embeddings + "patch_embedding");
  position_ = context.value(embeddings + "position_embedding.weight");
  position_gradient_ = context.gradient(embeddings + "position_embedding.weight");
  if (config.clip) {
    class_token_ = context.value(embeddings + "class_embedding");
    class_token_gradient_ = context.gradient(embeddings + "class_embedding");
    pre_norm_ = LayerNorm<T>(context, name + "pre_layrnorm", config.hidden, config.eps);
  }
}

template <class T>
typename VisionTower<T>::Saved VisionTower<T>::saved() const {
  Saved saved;
  saved.layers = layers_.saved();
  return saved;
}

template <class T>
const T* VisionTower<T>::forward(const uint8_t* pixels, int64_t images, Saved& saved) {
  UnitHooks& hooks = context_.params.hooks();
  std::vector<int64_t>& starts = saved.starts;
  starts.clear();
  for (int64_t i = 0; i <= images; ++i) starts.push_back(i * positions());
  saved.rows.make(starts, context_.tp ? context_.tp->size() : 1);
  hooks.acquire(embed_unit);
  embed(pixels, saved, saved.layers.inputs.front().need(held(saved).rows * config_.hidden));
  hooks.release(embed_unit);
  return layers_.forward(saved.rows, saved.layers);
}

template <class T>
typename VisionTower<T>::Held VisionTower<T>::held(const Saved& saved) const {
  const SequenceParallel<T> split(context_.tp, saved.rows.bounds);
  const auto patch_of = [&](int64_t row) {
    const int64_t extra = positions() - config_.patches();
    return row / positions() * config_.patches() + std::max<int64_t>(0, row % positions() - extra);
  };
  const int64_t first = patch_of(split.begin());
  return {split.begin(), split.held(), first, patch_of(split.begin() + split.held()) - first};
}

template <class T>
void VisionTower<T>::embed(const uint8_t* pixels, Saved& saved, T* x) {
  const int64_t count = config_.patches(), edge = config_.image_size, size = 3 * int64_t{config_.patch} * config_.patch;
  const int64_t hidden = config_.hidden;
  const Held here = held(saved);
  const int64_t first = here.first_patch / count, end = (here.first_patch + here.patches + count - 1) / count;
  T* unfolded = saved.patches.need((end - first) * count * size);
  context_.pool.parallel_for(end - first, [&](int64_t i) {
    ops::patches(pixels + (first + i) * 3 * edge * edge, edge, config_.patch, pixel_table_.data(), unfolded + i * count * size);
  });
  T* patch_rows = patch_rows_.need(here.patches * hidden);
  patch_.forward(context_.pool, unfolded + (here.first_patch - first * count) * size, nullptr, patch_rows, here.patches);

  T* embedded = config_.clip ? saved.embedded.need(here.rows * hidden) : x;
  const int64_t extra = positions() - count;
  ops::for_parts(context_.pool, here.rows, ops::rows_per_tile(hidden), [&](int64_t r0, int64_t r1) {
    for (int64_t r = r0; r < r1; ++r) {
      const int64_t image = (here.begin + r) / positions(), at = (here.begin + r) % positions();
      const T* from = at < extra ? class_token_ : patch_rows + (image * count + at - extra - here.first_patch) * hidden;
      for (int64_t c = 0; c < hidden; ++c) embedded[r * hidden + c] = from[c] + position_[at * hidden + c];
    }
  });
  if (config_.clip) pre_norm_.forward(context_.pool, embedded, x, saved.pre_statistics.need(2 * here.rows), here.rows);
}

template <class T>
void VisionTower<T>::embed_backward(Saved& saved, T* gradient) {
  const int64_t count = config_.patches(), size = patch_.in, hidden = config_.hidden, extra = positions() - count;
  const Held here = held(saved);
  if (config_.clip)
    pre_norm_.backward(context_.pool, saved.embedded.get(), saved.pre_statistics.get(), gradient, gradient, here.rows, false);
  T* patch_rows = patch_rows_.need(here.patches * hidden);
  ops::for_parts(context_.pool, hidden, ops::columns_per_tile, [&](int64_t c0, int64_t c1) {
    int64_t patch = 0;
    for (int64_t r = 0; r < here.rows; ++r) {
      const int64_t at = (here.begin + r) % positions();
      const T* row = gradient + r * hidden;
      if (position_gradient_)
        for (int64_t c = c0; c < c1; ++c) position_gradient_[at * hidden + c] += row[c];
      if (at >= extra)
        std::copy(row + c0, row + c1, patch_rows + patch++ * hidden + c0);
      else if (class_token_gradient_)
        for (int64_t c = c0; c < c1; ++c) class_token_gradient_[c] += row[c];
    }
  });
  const int64_t first = here.first_patch / count * count;
  patch_.backward(context_.pool, saved.patches.get() + (here.first_patch - first) * size, patch_rows, nullptr, here.patches,
                  false);
}

template <class T>
void VisionTower<T>::backward(Saved& saved, T* gradient) {
  layers_.backward(saved.rows, saved.layers, gradient);
  UnitHooks& hooks = context_.params.hooks();
  hooks.acquire(embed_unit);
  embed_backward(saved, gradient);
  hooks.gradient_ready(embed_unit);
  hooks.release(embed_unit);
}

template class VisionTower<float>;
template class VisionTower<double>;

}  // namespace mm::model
