// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/text_tower.h"

#include "trainer/ops/rows.h"

namespace mm::model {
namespace {
const std::string embed_unit = "text.embed", embeddings = "text_model.embeddings.";
}

template <class T>
TextTower<T>::TextTower(const Context<T>& context, const DualTowerConfig::Text& config, bool recompute)
    : context_(context),
      hidden_(config.hidden),
      token_(context.value(embeddings + "token_embedding.weight")),
      position_(context.value(embeddings + "position_embedding.weight")),
      token_gradient_(context.gradient(embeddings + "token_embedding.weight")),
      position_gradient_(context.gradient(embeddings + "position_embedding.weight")),
      layers_(context, {config.hidden, config.heads, config.eps, config.activation}, "text_model.", "text", config.layers,
              recompute) {}

template <class T>
typename TextTower<T>::Saved TextTower<T>::saved() const {
  Saved saved;
  saved.layers = layers_.saved();
  saved.rows.causal = true;
  return saved;
}

template <class T>
const T* TextTower<T>::forward(const MicroBatch& batch, Saved& saved) {
  saved.rows.make(batch.starts, context_.tp ? context_.tp->size() : 1);
  const SequenceParallel<T> split(context_.tp, saved.rows.bounds);
  saved.ids.assign(batch.ids.begin() + split.begin(), batch.ids.begin() + split.begin() + split.held());
  saved.positions.clear();
  for (size_t s = 0; s + 1 < batch.starts.size(); ++s)
    for (int64_t row = batch.starts[s]; row < batch.starts[s + 1]; ++row)
      if (row >= split.begin() && row < split.begin() + split.held())
        saved.positions.push_back(static_cast<int32_t>(row - batch.starts[s]));
  UnitHooks& hooks = context_.params.hooks();
  hooks.acquire(embed_unit);
  T* x = saved.layers.inputs.front().need(split.held() * hidden_);
  T* placed = placed_.need(split.held() * hidden_);
  ops::gather_rows<int32_t, T>(context_.pool, token_, saved.ids, x, hidden_);
  ops::gather_rows<int32_t, T>(context_.pool, position_, saved.positions, placed, hidden_);
  add_rows<T>(context_.pool, x, placed, nullptr, x, split.held(), hidden_);
  hooks.release(embed_unit);
  return layers_.forward(saved.rows, saved.layers);
}

template <class T>
void TextTower<T>::backward(Saved& saved, T* gradient) {
  layers_.backward(saved.rows, saved.layers, gradient);
  UnitHooks& hooks = context_.params.hooks();
  hooks.acquire(embed_unit);
  if (token_gradient_) ops::add_to_rows<T>(context_.pool, gradient, saved.ids, token_gradient_, hidden_);
  if (position_gradient_) ops::add_to_rows<T>(context_.pool, gradient, saved.positions, position_gradient_, hidden_);
  hooks.gradient_ready(embed_unit);
  hooks.release(embed_unit);
}

template class TextTower<float>;
template class TextTower<double>;

}  // namespace mm::model
