// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/encoder_layer.h"

#include "trainer/ops/activation.h"

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

}  // namespace

void EncoderRows::make(std::span<const int64_t> starts, int tp) {
  bounds.assign(1, 0);
  for (int t = 0; t < tp; ++t) bounds.push_back(comm::part_of(starts.back(), t, tp).end);
  ops::whole_sequences(starts, segments);
}

template <class T>
EncoderLayer<T>::EncoderLayer(const Context<T>& context, const EncoderShape& shape, const std::string& name, std::string unit)
    : context_(context), shape_(shape), unit_(std::move(unit)) {
  context.deal_out(shape.heads, "heads");
  norm1_ = LayerNorm<T>(context, name + "layer_norm1", shape.hidden, shape.eps);
  norm2_ = LayerNorm<T>(context, name + "layer_norm2", shape.hidden, shape.eps);
  query_ = Linear<T>(context, name + "self_attn.q_proj");
  key_ = Linear<T>(context, name + "self_attn.k_proj");
  value_ = Linear<T>(context, name + "self_attn.v_proj");
  out_ = Linear<T>(context, name + "self_attn.out_proj");
  up_ = Linear<T>(context, name + "mlp.fc1");
  down_ = Linear<T>(context, name + "mlp.fc2");
}

template <class T>
ops::AttentionShape EncoderLayer<T>::attention(const EncoderRows& rows) const {
  ops::AttentionShape attention;
  attention.head_size = shape_.hidden / shape_.heads;
  attention.heads = attention.kv_heads = query_.out / attention.head_size;
  attention.causal = rows.causal;
  attention.segments = rows.segments;
  return attention;
}

template <class T>
void EncoderLayer<T>::forward(EncoderShared<T>& shared, const EncoderRows& layout, const T* x, Saved& s, T* y,
                              bool again) const {
  tensor::ThreadPool& pool = context_.pool;
  const SequenceParallel<T> split(context_.tp, layout.bounds);
  const int64_t rows = split.all(), held = split.held(), values = held * shape_.hidden;
  norm1_.forward(pool, x, s.normed1.need(values), s.statistics1.need(2 * held), held);
  const T* normed = split.gather(s.normed1.get(), shape_.hidden, shared.gathered);
  query_.forward(pool, normed, nullptr, s.q.need(rows * query_.out), rows);
  key_.forward(pool, normed, nullptr, s.k.need(rows * key_.out), rows);
  value_.forward(pool, normed, nullptr, s.v.need(rows * value_.out), rows);
  const ops::AttentionShape heads = attention(layout);
  ops::attention(pool, heads, s.q.get(), s.k.get(), s.v.get(), s.attended.need(rows * query_.out),
                 s.log_sums.need(rows * heads.heads));
  out_.forward_sum(pool, split, s.attended.get(), x, s.middle.need(values), shared.partial);
  norm2_.forward(pool, s.middle.get(), s.normed2.need(values), s.statistics2.need(2 * held), held);
  const T* normed2 = split.gather(s.normed2.get(), shape_.hidden, shared.gathered);
  const int64_t wide = rows * up_.out;
  up_.forward(pool, normed2, nullptr, s.hidden.need(wide), rows);
  ops::gelu(pool, gelu_kind(shape_.activation), s.hidden.get(), s.activated.need(wide), wide);
  if (!again) down_.forward_sum(pool, split, s.activated.get(), s.middle.get(), y, shared.partial);
}

template <class T>
void EncoderLayer<T>::backward(EncoderShared<T>& shared, const EncoderRows& layout, const T* x, Saved& s, T* gradient) const {
  tensor::ThreadPool& pool = context_.pool;
  const SequenceParallel<T> split(context_.tp, layout.bounds);
  const int64_t rows = split.all(), held = split.held(), hidden = shape_.hidden, wide = rows * up_.out;
  T *dwide = shared.dwide.need(wide), *dnormed = shared.dnormed.need(rows * hidden);
  down_.backward_sum(pool, split, s.activated.get(), gradient, split.gather(gradient, hidden, shared.gathered_gradient), dwide);
  ops::gelu_backward(pool, gelu_kind(shape_.activation), s.hidden.get(), dwide, wide);
  up_.backward(pool, split.gather(s.normed2.get(), hidden, shared.gathered), dwide, dnormed, rows, false);
  norm2_.backward(pool, s.middle.get(), s.statistics2.get(), split.reduce(dnormed, hidden), gradient, held, true);

  const int64_t values = rows * query_.out;
  T *dattended = shared.dattended.need(values), *dq = shared.dq.need(values), *dk = shared.dk.need(values),
    *dv = shared.dv.need(values);
  out_.backward_sum(pool, split, s.attended.get(), gradient, split.gather(gradient, hidden, shared.gathered_gradient),
                    dattended);
  ops::attention_backward(pool, attention(layout), s.q.get(), s.k.get(), s.v.get(), s.attended.get(), dattended,
                          s.log_sums.get(), dq, dk, dv);
  const T* normed = split.gather(s.normed1.get(), hidden, shared.gathered);
  query_.backward(pool, normed, dq, dnormed, rows, false);
  key_.backward(pool, normed, dk, dnormed, rows, true);
  value_.backward(pool, normed, dv, dnormed, rows, true);
  norm1_.backward(pool, x, s.statistics1.get(), split.reduce(dnormed, hidden), gradient, held, true);
}

template <class T>
EncoderStack<T>::EncoderStack(const Context<T>& context, const EncoderShape& shape, const std::string& name,
                              const std::string& unit, int layers, bool recompute)
    : context_(context), hidden_(shape.hidden), recompute_(recompute) {
  for (int i = 0; i < layers; ++i)
    layers_.emplace_back(context, shape, name + "encoder.layers." + std::to_string(i) + ".", unit + "." + std::to_string(i));
}

template <class T>
typename EncoderStack<T>::Saved EncoderStack<T>::saved() const {
  Saved saved;
  saved.inputs.resize(layers_.size() + 1);
  if (!recompute_) saved.layers.resize(layers_.size());
  return saved;
}

template <class T>
const T* EncoderStack<T>::forward(const EncoderRows& rows, Saved& saved) {
  UnitHooks& hooks = context_.params.hooks();
  const int64_t values = SequenceParallel<T>(context_.tp, rows.bounds).held() * hidden_;
  for (size_t i = 0; i < layers_.size(); ++i) {
    hooks.acquire(layers_[i].unit());
    layers_[i].forward(shared_, rows, saved.inputs[i].get(), layer_saved(saved, i), saved.inputs[i + 1].need(values));
    hooks.release(layers_[i].unit());
  }
  return saved.inputs.back().get();
}

template <class T>
void EncoderStack<T>::backward(const EncoderRows& rows, Saved& saved, T* gradient) {
  UnitHooks& hooks = context_.params.hooks();
  for (size_t i = layers_.size(); i-- > 0;) {
    const EncoderLayer<T>& layer = layers_[i];
    hooks.acquire(layer.unit());
    if (recompute_) layer.forward(shared_, rows, saved.inputs[i].get(), again_, nullptr, true);
    layer.backward(shared_, rows, saved.inputs[i].get(), layer_saved(saved, i), gradient);
    hooks.gradient_ready(layer.unit());
    hooks.release(layer.unit());
  }
}

template class EncoderLayer<float>;
template class EncoderLayer<double>;
template class EncoderStack<float>;
template class EncoderStack<double>;

}  // namespace mm::model
