// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/decoder.h"

#include "trainer/ops/activation.h"

namespace mm::model {

template <class T>
Decoder<T>::Decoder(const TextConfig& config, ParamStore<T>& params, tensor::ThreadPool& pool)
    : config_(config), pool_(pool), rope_(config.head_size(), config.rope_theta) {
  const ParamAccess<T> access{params};
  for (int i = 0; i < config.layers; ++i) {
    const std::string name = "language_model.model.layers." + std::to_string(i) + ".";
    Layer& layer = layers_.emplace_back();
    layer.norm1 = RmsNorm<T>(access, name + "input_layernorm", config.hidden, config.eps);
    layer.norm2 = RmsNorm<T>(access, name + "post_attention_layernorm", config.hidden, config.eps);
    layer.query = Linear<T>(access, name + "self_attn.q_proj");
    layer.key = Linear<T>(access, name + "self_attn.k_proj");
    layer.value = Linear<T>(access, name + "self_attn.v_proj");
    layer.out = Linear<T>(access, name + "self_attn.o_proj");
    layer.gate = Linear<T>(access, name + "mlp.gate_proj");
    layer.up = Linear<T>(access, name + "mlp.up_proj");
    layer.down = Linear<T>(access, name + "mlp.down_proj");
  }
}

template <class T>
T* Decoder<T>::input(int64_t rows) {
  rows_ = rows;
  for (Layer& layer : layers_) layer.x.need(rows * config_.hidden);
  result_.need(rows * config_.hidden);
  return layers_.front().x.get();
}

template <class T>
const T* Decoder<T>::forward(std::span<const int64_t> starts) {
  ops::whole_sequences(starts, segments_);
  positions_.clear();
  int64_t longest = 0;
  for (const ops::Segment& segment : segments_) {
    longest = std::max(longest, segment.q_rows);
    for (int64_t p = 0; p < segment.q_rows; ++p) positions_.push_back(p);
  }
  rope_.reach(longest);
  for (size_t i = 0; i < layers_.size(); ++i)
    layer_forward(layers_[i], i + 1 < layers_.size() ? layers_[i + 1].x.get() : result_.get());
  return result_.get();
}

template <class T>
ops::AttentionShape Decoder<T>::attention_shape() const {
  return {.heads = config_.heads,
          .kv_heads = config_.kv_heads,
          .head_size = config_.head_size(),
          .causal = true,
          .segments = segments_};
}

template <class T>
void Decoder<T>::layer_forward(Layer& l, T* y) {
  const int64_t values = rows_ * config_.hidden, kv_values = rows_ * l.key.out, wide = rows_ * config_.intermediate;
  const T* x = l.x.get();
  l.norm1.forward(pool_, x, l.normed1.need(values), l.statistics1.need(rows_), rows_);
  l.query.forward(pool_, l.normed1.get(), nullptr, l.q.need(values), rows_);
  l.key.forward(pool_, l.normed1.get(), nullptr, l.k.need(kv_values), rows_);
  l.value.forward(pool_, l.normed1.get(), nullptr, l.v.need(kv_values), rows_);
  ops::rope(pool_, rope_, positions_.data(), l.q.get(), rows_, config_.heads, false);
  ops::rope(pool_, rope_, positions_.data(), l.k.get(), rows_, config_.kv_heads, false);
  ops::attention(pool_, attention_shape(), l.q.get(), l.k.get(), l.v.get(), l.attended.need(values),
                 l.log_sums.need(rows_ * config_.heads));
  l.out.forward(pool_, l.attended.get(), x, l.middle.need(values), rows_);
  l.norm2.forward(pool_, l.middle.get(), l.normed2.need(values), l.statistics2.need(rows_), rows_);
  l.gate.forward(pool_, l.normed2.get(), nullptr, l.gated.need(wide), rows_);
  l.up.forward(pool_, l.normed2.get(), nullptr, l.lifted.need(wide), rows_);
  ops::swiglu(pool_, l.gated.get(), l.lifted.get(), l.activated.need(wide), wide);
  l.down.forward(pool_, l.activated.get(), l.middle.get(), y, rows_);
}

template <class T>
void Decoder<T>::layer_backward(Layer& l, T* gradient) {
  const int64_t values = rows_ * config_.hidden, kv_values = rows_ * l.key.out, wide = rows_ * config_.intermediate;
  T *dgate = wide1_.need(wide), *dup = wide2_.need(wide), *dnormed = normed_gradient_.need(values);
  l.down.backward(pool_, l.activated.get(), gradient, dgate, rows_, false);
  ops::swiglu_backward(pool_, l.gated.get(), l.lifted.get(), dgate, dgate, dup, wide);
  l.gate.backward(pool_, l.normed2.get(), dgate, dnormed, rows_, false);
  l.up.backward(pool_, l.normed2.get(), dup, dnormed, rows_, true);
  l.norm2.backward(pool_, l.middle.get(), l.statistics2.get(), dnormed, gradient, rows_, true);

  T *dattended = dattended_.need(values), *dq = dq_.need(values), *dk = dk_.need(kv_values), *dv = dv_.need(kv_values);
  l.out.backward(pool_, l.attended.get(), gradient, dattended, rows_, false);
  ops::attention_backward(pool_, attention_shape(), l.q.get(), l.k.get(), l.v.get(), l.attended.get(), dattended,
                          l.log_sums.get(), dq, dk, dv);
  ops::rope(pool_, rope_, positions_.data(), dq, rows_, config_.heads, true);
  ops::rope(pool_, rope_, positions_.data(), dk, rows_, config_.kv_heads, true);
  l.query.backward(pool_, l.normed1.get(), dq, dnormed, rows_, false);
  l.key.backward(pool_, l.normed1.get(), dk, dnormed, rows_, true);
  l.value.backward(pool_, l.normed1.get(), dv, dnormed, rows_, true);
  l.norm1.backward(pool_, l.x.get(), l.statistics1.get(), dnormed, gradient, rows_, true);
}

template <class T>
void Decoder<T>::backward(T* gradient) {
  for (size_t i = layers_.size(); i-- > 0;) layer_backward(layers_[i], gradient);
}

template class Decoder<float>;
template class Decoder<double>;

}  // namespace mm::model
