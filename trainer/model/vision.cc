// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/vision.h"

#include "common/error.h"
#include "trainer/ops/activation.h"
#include "trainer/ops/attention.h"
#include "trainer/ops/rows.h"

namespace mm::model {
namespace {

ops::Gelu gelu_kind(Activation a) {
  switch (a) {
    case Activation::gelu:
      return ops::Gelu::exact;
    case Activation::gelu_tanh:
      return ops::Gelu::tanh;
    case Activation::quick_gelu:
      return ops::Gelu::quick;
  }
  return ops::Gelu::exact;
}

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
VisionTower<T>::VisionTower(const VisionConfig& config, int layers, ParamStore<T>& params, tensor::ThreadPool& pool)
    : config_(config), pool_(pool), pixel_table_(pixel_table<T>(config)) {
  const std::string tower = "vision_tower.vision_model.", embeddings = tower + "embeddings.";
  const ParamAccess<T> access{params};
  for (const ParamSpec& spec : params.specs()) trained_ |= spec.trained() && spec.name.starts_with(tower);
  patch_ = Linear<T>(access, embeddings + "patch_embedding");
  position_ = access.value(embeddings + "position_embedding.weight");
  position_gradient_ = access.gradient(embeddings + "position_embedding.weight");
  if (config.clip) {
    class_token_ = access.value(embeddings + "class_embedding");
    class_token_gradient_ = access.gradient(embeddings + "class_embedding");
    pre_norm_ = LayerNorm<T>(access, tower + "pre_layrnorm", config.hidden, config.eps);
  }
  for (int i = 0; i < layers; ++i) {
    const std::string name = tower + "encoder.layers." + std::to_string(i) + ".";
    Layer& layer = layers_.emplace_back();
    layer.norm1 = LayerNorm<T>(access, name + "layer_norm1", config.hidden, config.eps);
    layer.norm2 = LayerNorm<T>(access, name + "layer_norm2", config.hidden, config.eps);
    layer.query = Linear<T>(access, name + "self_attn.q_proj");
    layer.key = Linear<T>(access, name + "self_attn.k_proj");
    layer.value = Linear<T>(access, name + "self_attn.v_proj");
    layer.out = Linear<T>(access, name + "self_attn.out_proj");
    layer.up = Linear<T>(access, name + "mlp.fc1");
    layer.down = Linear<T>(access, name + "mlp.fc2");
  }
}

template <class T>
const T* VisionTower<T>::forward(std::span<const data::Image* const> images) {
  images_ = static_cast<int64_t>(images.size());
  segments_.clear();
  for (int64_t i = 0; i < images_; ++i) segments_.push_back({i, i * positions(), positions(), i * positions(), positions(), 0});
  const int64_t values = images_ * positions() * config_.hidden;
  result_.need(values);
  for (Layer& layer : layers_) layer.x.need(values);
  embed(images);
  for (size_t i = 0; i < layers_.size(); ++i)
    layer_forward(layers_[i], i + 1 < layers_.size() ? layers_[i + 1].x.get() : result_.get());
  return result_.get();
}

template <class T>
void VisionTower<T>::embed(std::span<const data::Image* const> images) {
  const int64_t count = config_.patches(), edge = config_.image_size, size = 3 * int64_t{config_.patch} * config_.patch;
  const int64_t hidden = config_.hidden, rows = images_ * positions();
  for (const data::Image* image : images)
    if (image->width != edge || image->height != edge || image->rgb.size() != static_cast<size_t>(3 * edge * edge))
      throw Error(exit_status::internal, "model: a picture of " + std::to_string(image->width) + " x " +
                                             std::to_string(image->height) + " where the tower takes " + std::to_string(edge) +
                                             " x " + std::to_string(edge));
  T* unfolded = patches_.need(images_ * count * size);
  pool_.parallel_for(images_, [&](int64_t i) {
    ops::patches(images[static_cast<size_t>(i)]->rgb.data(), edge, config_.patch, pixel_table_.data(),
                 unfolded + i * count * size);
  });
  T* first = layers_.empty() ? result_.get() : layers_.front().x.get();
  if (!config_.clip) {
    patch_.forward(pool_, unfolded, nullptr, first, rows);
    ops::add_repeated(pool_, position_, first, rows, positions(), hidden);
    return;
  }
  T* embedded = embedded_.need(rows * hidden);
  pool_.parallel_for(images_, [&](int64_t i) { std::copy_n(class_token_, hidden, embedded + i * positions() * hidden); });
  for (int64_t i = 0; i < images_; ++i)
    patch_.forward(pool_, unfolded + i * count * size, nullptr, embedded + (i * positions() + 1) * hidden, count);
  ops::add_repeated(pool_, position_, embedded, rows, positions(), hidden);
  pre_norm_.forward(pool_, embedded, first, pre_statistics_.need(2 * rows), rows);
}

template <class T>
void VisionTower<T>::embed_backward(T* gradient) {
  const int64_t count = config_.patches(), size = patch_.in, hidden = config_.hidden, rows = images_ * positions();
  if (config_.clip) pre_norm_.backward(pool_, embedded_.get(), pre_statistics_.get(), gradient, gradient, rows, false);
  if (position_gradient_) ops::add_period_sums(pool_, gradient, position_gradient_, rows, positions(), hidden);
  if (!config_.clip) {
    patch_.backward(pool_, patches_.get(), gradient, nullptr, rows, false);
    return;
  }
  for (int64_t i = 0; i < images_; ++i) {
    const T* mine = gradient + i * positions() * hidden;
    if (class_token_gradient_) ops::add_row_sums(pool_, mine, class_token_gradient_, 1, hidden);
    patch_.backward(pool_, patches_.get() + i * count * size, mine + hidden, nullptr, count, false);
  }
}

template <class T>
void VisionTower<T>::layer_forward(Layer& l, T* y) {
  const int64_t rows = images_ * positions(), values = rows * config_.hidden;
  const T* x = l.x.get();
  l.norm1.forward(pool_, x, l.normed1.need(values), l.statistics1.need(2 * rows), rows);
  l.query.forward(pool_, l.normed1.get(), nullptr, l.q.need(values), rows);
  l.key.forward(pool_, l.normed1.get(), nullptr, l.k.need(values), rows);
  l.value.forward(pool_, l.normed1.get(), nullptr, l.v.need(values), rows);
  const ops::AttentionShape shape{
      .heads = config_.heads, .kv_heads = config_.heads, .head_size = config_.hidden / config_.heads, .segments = segments_};
  ops::attention(pool_, shape, l.q.get(), l.k.get(), l.v.get(), l.attended.need(values), l.log_sums.need(rows * config_.heads));
  l.out.forward(pool_, l.attended.get(), x, l.middle.need(values), rows);
  l.norm2.forward(pool_, l.middle.get(), l.normed2.need(values), l.statistics2.need(2 * rows), rows);
  const int64_t wide = rows * config_.intermediate;
  l.up.forward(pool_, l.normed2.get(), nullptr, l.hidden.need(wide), rows);
  ops::gelu(pool_, gelu_kind(config_.activation), l.hidden.get(), l.activated.need(wide), wide);
  l.down.forward(pool_, l.activated.get(), l.middle.get(), y, rows);
}

template <class T>
void VisionTower<T>::layer_backward(Layer& l, T* gradient) {
  const int64_t rows = images_ * positions(), values = rows * config_.hidden, wide = rows * config_.intermediate;
  T *dwide = wide_.need(wide), *dnormed = normed_gradient_.need(values);
  l.down.backward(pool_, l.activated.get(), gradient, dwide, rows, false);
  ops::gelu_backward(pool_, gelu_kind(config_.activation), l.hidden.get(), dwide, wide);
  l.up.backward(pool_, l.normed2.get(), dwide, dnormed, rows, false);
  l.norm2.backward(pool_, l.middle.get(), l.statistics2.get(), dnormed, gradient, rows, true);

  T *dattended = dattended_.need(values), *dq = dq_.need(values), *dk = dk_.need(values), *dv = dv_.need(values);
  l.out.backward(pool_, l.attended.get(), gradient, dattended, rows, false);
  const ops::AttentionShape shape{
      .heads = config_.heads, .kv_heads = config_.heads, .head_size = config_.hidden / config_.heads, .segments = segments_};
  ops::attention_backward(pool_, shape, l.q.get(), l.k.get(), l.v.get(), l.attended.get(), dattended, l.log_sums.get(), dq, dk,
                          dv);
  l.query.backward(pool_, l.normed1.get(), dq, dnormed, rows, false);
  l.key.backward(pool_, l.normed1.get(), dk, dnormed, rows, true);
  l.value.backward(pool_, l.normed1.get(), dv, dnormed, rows, true);
  l.norm1.backward(pool_, l.x.get(), l.statistics1.get(), dnormed, gradient, rows, true);
}

template <class T>
void VisionTower<T>::backward(T* gradient) {
  for (size_t i = layers_.size(); i-- > 0;) layer_backward(layers_[i], gradient);
  embed_backward(gradient);
}

template class VisionTower<float>;
template class VisionTower<double>;

}  // namespace mm::model
