// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/stage.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "common/error.h"
#include "trainer/model/decoder_layer.h"

namespace mm::model {
namespace {

comm::Comm* unless_alone(comm::Comm* group) {
  return group && group->size() > 1 ? group : nullptr;
}

GridPlace place_of(const comm::Comm* tp, const comm::Comm* cp) {
  GridPlace place;
  if (tp) place.tp = tp->size(), place.tp_rank = tp->rank();
  if (cp) place.cp = cp->size(), place.cp_rank = cp->rank();
  return place;
}

}  // namespace

template <class T>
struct Stage<T>::State {
  using Layer = DecoderLayer<T>;
  // One micro-batch of one chunk.
  struct Slot {
    bool kept = false;  // the last forward's activations are there for one backward
    RowPlan plan;
    typename ImageFeatures<T>::Saved images;
    std::vector<tensor::Buffer<T>> inputs;  // of each layer, and of the head
    std::vector<typename Layer::Saved> layers;
    typename Head<T>::Saved head;
  };
  struct Piece {
    Chunk what;
    std::vector<Layer> layers;
    std::vector<std::unique_ptr<Slot>> slots;
  };

  Context<T> context;
  comm::Comm* pictures;
  GridPlace place;
  StageOptions options;
  int64_t hidden;
  DecoderShared<T> shared;
  std::optional<Embedding<T>> embedding;
  std::optional<ImageFeatures<T>> images;
  std::optional<Head<T>> head;
  std::vector<Piece> pieces;
  typename Layer::Saved again;
  tensor::Buffer<T> gradient, dlabelled;

  State(const VlmConfig& config, const std::vector<Chunk>& chunks, ParamStore<T>& params, tensor::ThreadPool& pool,
        const StageGroups& groups, const StageOptions& o)
      : context{pool, params, unless_alone(groups.tp), unless_alone(groups.cp)},
        pictures(unless_alone(groups.pictures)),
        place(place_of(context.tp, context.cp)),
        options(o),
        hidden(config.text.hidden),
        shared(context, config.text, chunks.at(0).first_layer) {
    bool embeds = false;
    for (const Chunk& chunk : chunks) embeds |= chunk.embeds;
    for (const Chunk& chunk : chunks) {
      if (chunk.first_layer == chunk.end_layer) throw usage_error("model: a pipeline stage would have no layer");
      Piece& piece = pieces.emplace_back();
      piece.what = chunk;
      for (int i = chunk.first_layer; i < chunk.end_layer; ++i)
        piece.layers.emplace_back(context, config.text, i, chunk.heads && i + 1 == chunk.end_layer);
      if (chunk.heads) head.emplace(context, config.text, o.loss, embeds);
    }
    if (!embeds) return;
    embedding.emplace(context, config.text);
    images.emplace(Context<T>{pool, params, nullptr, nullptr}, groups.makers, groups.makers.replicas == 0, config, o.recompute);
  }

  Piece& piece(int chunk) { return pieces.at(static_cast<size_t>(chunk)); }

  Slot& slot_of(Piece& piece, int number) {
    const auto at = static_cast<size_t>(number);
    if (piece.slots.size() <= at) piece.slots.resize(at + 1);
    if (!piece.slots[at]) {
      piece.slots[at] = std::make_unique<Slot>();
      Slot& slot = *piece.slots[at];
      slot.inputs.resize(piece.layers.size() + 1);
      if (!options.recompute) slot.layers.resize(piece.layers.size());
      if (images && piece.what.embeds) slot.images = images->saved();
    }
    return *piece.slots[at];
  }

  int64_t held(const Slot& slot) const { return SequenceParallel<T>(context.tp, slot.plan.bounds()).held(); }
  int64_t held_labels(const Slot& slot) const { return static_cast<int64_t>(slot.plan.held_label_rows().size()); }
  typename Layer::Saved& saved(Slot& slot, size_t layer) { return options.recompute ? again : slot.layers[layer]; }

  // Up to the input of the head, or to `out`.
  void run_layers(Piece& piece, Slot& slot, const MicroBatch& batch, const T* in, T* out) {
    slot.plan.make(batch, place);
    const int64_t values = held(slot) * hidden;
    int64_t longest = 0;
    for (size_t s = 0; s + 1 < batch.starts.size(); ++s) longest = std::max(longest, batch.starts[s + 1] - batch.starts[s]);
    shared.rope.reach(longest);
    T* x = slot.inputs.front().need(values);
    if (piece.what.embeds) {
      embedding->forward(slot.plan, x);
      const T* features = images->forward(pictures, batch, slot.images);
      for (size_t i = 0; i < slot.plan.features().size(); ++i)
        std::copy_n(features + slot.plan.features()[i] * hidden, hidden, x + slot.plan.feature_rows()[i] * hidden);
    } else {
      std::copy_n(in, values, x);
    }
    UnitHooks& hooks = context.params.hooks();
    for (size_t i = 0; i < piece.layers.size(); ++i) {
      const Layer& layer = piece.layers[i];
      const bool to_out = i + 1 == piece.layers.size() && !piece.what.heads;
      T* y = to_out ? out : slot.inputs[i + 1].need((layer.last() ? held_labels(slot) : held(slot)) * hidden);
      hooks.acquire(layer.unit());
      layer.forward(shared, slot.plan, slot.inputs[i].get(), saved(slot, i), y);
      hooks.release(layer.unit());
    }
  }
};

template <class T>
Stage<T>::Stage(const VlmConfig& config, std::vector<Chunk> chunks, ParamStore<T>& params, tensor::ThreadPool& pool,
                const StageGroups& groups, const StageOptions& options)
    : state_(std::make_unique<State>(config, chunks, params, pool, groups, options)) {}

template <class T>
Stage<T>::~Stage() = default;

template <class T>
int Stage<T>::chunks() const {
  return static_cast<int>(state_->pieces.size());
}

template <class T>
int64_t Stage<T>::boundary_elements(const MicroBatch& batch) const {
  return held_rows(batch.rows(), state_->place) * state_->hidden;
}

template <class T>
double Stage<T>::forward(int chunk, int slot, const MicroBatch& batch, const T* in, T* out) {
  State& s = *state_;
  auto& piece = s.piece(chunk);
  auto& room = s.slot_of(piece, slot);
  room.kept = false;
  s.run_layers(piece, room, batch, in, out);
  room.kept = true;
  if (!piece.what.heads) return 0;
  s.head->logits(room.plan, room.inputs.back().get(), room.head);
  return s.head->loss(room.plan, room.head);
}

template <class T>
const T* Stage<T>::logits(int chunk, int slot, const MicroBatch& batch, const T* in) {
  State& s = *state_;
  auto& piece = s.piece(chunk);
  auto& room = s.slot_of(piece, slot);
  room.kept = false;
  s.run_layers(piece, room, batch, in, nullptr);
  return s.head->logits(room.plan, room.inputs.back().get(), room.head);
}

template <class T>
void Stage<T>::backward(int chunk, int slot, const MicroBatch& batch, double scale, const T* dout, T* din) {
  State& s = *state_;
  auto& piece = s.piece(chunk);
  auto& room = s.slot_of(piece, slot);
  if (!std::exchange(room.kept, false)) throw std::logic_error("model: backward without a forward before it");
  const int64_t values = s.held(room) * s.hidden;
  T* gradient = piece.what.embeds ? s.gradient.need(values) : din;
  T* dy = gradient;
  if (piece.what.heads) {
    dy = s.dlabelled.need(s.held_labels(room) * s.hidden);
    s.head->backward(room.plan, scale, room.inputs.back().get(), room.head, dy);
  } else {
    std::copy_n(dout, values, gradient);
  }
  UnitHooks& hooks = s.context.params.hooks();
  for (size_t i = piece.layers.size(); i-- > 0;) {
    const auto& layer = piece.layers[i];
    const T* x = room.inputs[i].get();
    hooks.acquire(layer.unit());
    if (s.options.recompute) layer.forward(s.shared, room.plan, x, s.again, nullptr, true);
    layer.backward(s.shared, room.plan, x, s.saved(room, i), dy, gradient);
    hooks.gradient_ready(layer.unit());
    hooks.release(layer.unit());
    dy = gradient;
  }
  if (!piece.what.embeds) return;
  s.embedding->backward(room.plan, gradient);
  s.images->backward(s.pictures, batch, room.plan, gradient, room.images);
}

template class Stage<float>;
template class Stage<double>;

}  // namespace mm::model
