// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/decoder_layer.h"

#include <algorithm>

#include "trainer/ops/activation.h"
#include "trainer/ops/rows.h"

namespace mm::model {
namespace {

std::string layer_name(int layer) {
  return "language_model.model.layers." + std::to_string(layer) + ".";
}

// The heads of a rank: its query heads are a slice of all, and need these key heads.
template <class T>
struct Heads {
  int64_t queries, first_key, keys;
  ops::AttentionShape shape;

  Heads(const Context<T>& context, const TextConfig& config, const std::string& query) {
    context.deal_out(config.heads, "heads");
    context.deal_out(config.intermediate, "features of the MLP");
    context.deal_out(config.vocabulary, "tokens of the vocabulary");
    const LocalParam& local = context.params.local()[context.params.index(query + ".weight")];
    const int64_t size = config.head_size(), group = config.heads / config.kv_heads, first = local.offset[0] / size;
    queries = local.shape[0] / size;
    first_key = first / group;
    keys = (first + queries - 1) / group - first_key + 1;
    shape.heads = queries;
    shape.kv_heads = keys;
    shape.head_size = size;
    shape.group = group;
    shape.first_head = first % group;
    shape.causal = true;
  }
};

}  // namespace

template <class T>
DecoderShared<T>::DecoderShared(const Context<T>& context, const TextConfig& config, int layer)
    : rope(config.head_size(), config.rope_theta),
      attention(context, Heads<T>(context, config, layer_name(layer) + "self_attn.q_proj").shape) {}

template <class T>
DecoderLayer<T>::DecoderLayer(const Context<T>& context, const TextConfig& config, int layer, bool last)
    : context_(context), unit_("text." + std::to_string(layer)), last_(last), hidden_(config.hidden) {
  const std::string name = layer_name(layer);
  norm1_ = RmsNorm<T>(context, name + "input_layernorm", config.hidden, config.eps);
  norm2_ = RmsNorm<T>(context, name + "post_attention_layernorm", config.hidden, config.eps);
  query_ = Linear<T>(context, name + "self_attn.q_proj");
  key_ = Linear<T>(context, name + "self_attn.k_proj");
  value_ = Linear<T>(context, name + "self_attn.v_proj");
  out_ = Linear<T>(context, name + "self_attn.o_proj");
  gate_ = Linear<T>(context, name + "mlp.gate_proj");
  up_ = Linear<T>(context, name + "mlp.up_proj");
  down_ = Linear<T>(context, name + "mlp.down_proj");
  const Heads<T> heads(context, config, name + "self_attn.q_proj");
  heads_ = heads.queries;
  kv_heads_ = heads.keys;
  // Where key heads cannot be dealt out each rank holds all of them, and takes those that its query heads read.
  if (key_.out == int64_t{config.kv_heads} * config.head_size()) {
    const int64_t size = config.head_size();
    key_ = key_.outputs(heads.first_key * size, kv_heads_ * size);
    value_ = value_.outputs(heads.first_key * size, kv_heads_ * size);
  }
}

template <class T>
void DecoderLayer<T>::forward(DecoderShared<T>& shared, const RowPlan& plan, const T* x, Saved& saved, T* y, bool again) const {
  tensor::ThreadPool& pool = context_.pool;
  const SequenceParallel<T> in(context_.tp, plan.bounds()), out(context_.tp, last_ ? plan.label_bounds() : plan.bounds());
  const int64_t rows = in.all(), asking = out.all(), key_values = rows * key_.out;

  norm1_.forward(pool, x, saved.normed1.need(in.held() * hidden_), saved.statistics1.need(in.held()), in.held());
  const T* normed = in.gather(saved.normed1.get(), hidden_, shared.gathered);
  const T* asked = normed;
  if (last_) {
    ops::gather_rows<int32_t, T>(pool, normed, plan.label_rows(), shared.asking.need(asking * hidden_), hidden_);
    asked = shared.asking.get();
  }
  T *q = saved.q.need(asking * query_.out), *kv = saved.kv.need(2 * key_values);
  query_.forward(pool, asked, nullptr, q, asking);
  key_.forward(pool, normed, nullptr, kv, rows);
  value_.forward(pool, normed, nullptr, kv + key_values, rows);
  ops::rope(pool, shared.rope, (last_ ? plan.label_positions() : plan.positions()).data(), q, asking, heads_, false);
  ops::rope(pool, shared.rope, plan.positions().data(), kv, rows, kv_heads_, false);
  T* attended = saved.attended.need(asking * query_.out);
  shared.attention.forward(plan, last_, q, kv, attended, saved.log_sums.need(asking * heads_));

  T* middle = saved.middle.need(out.held() * hidden_);
  const T* residual = x;
  if (last_) {
    ops::gather_rows<int64_t, T>(pool, x, plan.held_label_rows(), middle, hidden_);
    residual = middle;
  }
  out_.forward_sum(pool, out, attended, residual, middle, shared.partial);
  norm2_.forward(pool, middle, saved.normed2.need(out.held() * hidden_), saved.statistics2.need(out.held()), out.held());
  const T* normed2 = out.gather(saved.normed2.get(), hidden_, shared.gathered);
  const int64_t wide = asking * gate_.out;
  gate_.forward(pool, normed2, nullptr, saved.gated.need(wide), asking);
  up_.forward(pool, normed2, nullptr, saved.lifted.need(wide), asking);
  ops::swiglu(pool, saved.gated.get(), saved.lifted.get(), saved.activated.need(wide), wide);
  if (!again) down_.forward_sum(pool, out, saved.activated.get(), middle, y, shared.partial);
}

template <class T>
void DecoderLayer<T>::backward(DecoderShared<T>& shared, const RowPlan& plan, const T* x, Saved& saved, T* dy, T* dx) const {
  tensor::ThreadPool& pool = context_.pool;
  const SequenceParallel<T> in(context_.tp, plan.bounds()), out(context_.tp, last_ ? plan.label_bounds() : plan.bounds());
  const int64_t rows = in.all(), asking = out.all(), key_values = rows * key_.out, wide = asking * gate_.out;
  T* dnormed = shared.dnormed.need(rows * hidden_);

  T *dgate = shared.dwide1.need(wide), *dup = shared.dwide2.need(wide);
  down_.backward_sum(pool, out, saved.activated.get(), dy, out.gather(dy, hidden_, shared.gathered_gradient), dgate);
  ops::swiglu_backward(pool, saved.gated.get(), saved.lifted.get(), dgate, dgate, dup, wide);
  const T* normed2 = out.gather(saved.normed2.get(), hidden_, shared.gathered);
  gate_.backward(pool, normed2, dgate, dnormed, asking, false);
  up_.backward(pool, normed2, dup, dnormed, asking, true);
  norm2_.backward(pool, saved.middle.get(), saved.statistics2.get(), out.reduce(dnormed, hidden_), dy, out.held(), true);

  T *dattended = shared.dattended.need(asking * query_.out), *dq = shared.dq.need(asking * query_.out);
  T *dk = shared.dkv.need(2 * key_values), *dv = dk + key_values;
  out_.backward_sum(pool, out, saved.attended.get(), dy, out.gather(dy, hidden_, shared.gathered_gradient), dattended);
  shared.attention.backward(plan, last_, saved.q.get(), saved.kv.get(), saved.attended.get(), dattended, saved.log_sums.get(),
                            dq, dk);
  ops::rope(pool, shared.rope, (last_ ? plan.label_positions() : plan.positions()).data(), dq, asking, heads_, true);
  ops::rope(pool, shared.rope, plan.positions().data(), dk, rows, kv_heads_, true);
  const T* normed = in.gather(saved.normed1.get(), hidden_, shared.gathered);
  key_.backward(pool, normed, dk, dnormed, rows, false);
  value_.backward(pool, normed, dv, dnormed, rows, true);
  if (last_) {
    T *asked = shared.asking.need(asking * hidden_), *dasked = shared.dasking.need(asking * hidden_);
    ops::gather_rows<int32_t, T>(pool, normed, plan.label_rows(), asked, hidden_);
    query_.backward(pool, asked, dq, dasked, asking, false);
    ops::add_to_rows<T>(pool, dasked, plan.label_rows(), dnormed, hidden_);
    std::fill_n(dx, in.held() * hidden_, T(0));
    ops::scatter_rows<T>(pool, dy, plan.held_label_rows(), dx, hidden_);
  } else {
    query_.backward(pool, normed, dq, dnormed, rows, true);
  }
  norm1_.backward(pool, x, saved.statistics1.get(), in.reduce(dnormed, hidden_), dx, in.held(), true);
}

template struct DecoderShared<float>;
template struct DecoderShared<double>;
template class DecoderLayer<float>;
template class DecoderLayer<double>;

}  // namespace mm::model
