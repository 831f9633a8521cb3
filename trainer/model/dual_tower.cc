// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/dual_tower.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/error.h"
#include "trainer/model/contrastive_loss.h"
#include "trainer/model/pair_embedding.h"
#include "trainer/model/text_tower.h"
#include "trainer/model/vision.h"

namespace mm::model {

void pack_pairs(const DualTowerConfig& config, std::span<const data::Sample> samples, MicroBatch& out) {
  const auto refuse = [](const data::Sample& sample, const std::string& why) {
    throw data_error("model: sample " + sample.key + ": " + why);
  };
  const int edge = config.vision.image_size;
  out.clear();
  out.picture_bytes = int64_t{3} * edge * edge;
  for (const data::Sample& sample : samples) {
    if (sample.images.size() != 1) refuse(sample, std::to_string(sample.images.size()) + " pictures where a pair has one");
    if (sample.ids.empty()) refuse(sample, "no token");
    if (static_cast<int64_t>(sample.ids.size()) > config.text.max_positions)
      refuse(sample, std::to_string(sample.ids.size()) + " tokens where the model has " +
                         std::to_string(config.text.max_positions) + " positions");
    for (int32_t id : sample.ids)
      if (id < 0 || id >= config.text.vocabulary) refuse(sample, "token " + std::to_string(id) + " is outside the vocabulary");
    const data::Image& image = sample.images.front();
    if (image.width != edge || image.height != edge || static_cast<int64_t>(image.rgb.size()) != out.picture_bytes)
      refuse(sample, "a picture of " + std::to_string(image.width) + " x " + std::to_string(image.height) +
                         " where the tower takes " + std::to_string(edge) + " x " + std::to_string(edge));
    out.ids.insert(out.ids.end(), sample.ids.begin(), sample.ids.end());
    out.starts.push_back(out.rows());
    out.pixels.insert(out.pixels.end(), image.rgb.begin(), image.rgb.end());
    ++out.images;
  }
}

template <class T>
struct DualTower<T>::State {
  struct Slot {
    bool kept = false;
    typename VisionTower<T>::Saved vision;
    typename TextTower<T>::Saved text;
    typename PairEmbedding<T>::Saved picture, caption;
    int64_t pairs = 0, first = 0;  // and where they begin among this rank's
    const T *pictures = nullptr, *captions = nullptr;
  };

  Context<T> context;
  VisionTower<T> vision;
  TextTower<T> text;
  PairEmbedding<T> picture, caption;
  ContrastiveLoss<T> contrast;
  int64_t vision_hidden, text_hidden;
  std::vector<std::unique_ptr<Slot>> slots;
  std::vector<int64_t> pooled;
  tensor::Buffer<T> pictures, captions, gradient;

  State(const DualTowerConfig& c, const Context<T>& with, comm::Comm* data, bool recompute)
      : context(with),
        vision(with, c.vision, "vision_model.", c.vision.layers, recompute),
        text(with, c.text, recompute),
        picture(with, "vision_model.post_layernorm", "visual_projection", c.vision.hidden, c.vision.eps),
        caption(with, "text_model.final_layer_norm", "text_projection", c.text.hidden, c.text.eps),
        contrast(with, data, c.sigmoid, c.projection),
        vision_hidden(c.vision.hidden),
        text_hidden(c.text.hidden) {}

  Slot& slot(int number) {
    const auto at = static_cast<size_t>(number);
    if (slots.size() <= at) slots.resize(at + 1);
    if (!slots[at]) {
      slots[at] = std::make_unique<Slot>();
      slots[at]->vision = vision.saved();
      slots[at]->text = text.saved();
    }
    return *slots[at];
  }
};

namespace {
comm::Comm* unless_alone(comm::Comm* group) {
  return group && group->size() > 1 ? group : nullptr;
}
}  // namespace

template <class T>
DualTower<T>::DualTower(const DualTowerConfig& config, ParamStore<T>& params, tensor::ThreadPool& pool,
                        const DualTowerGroups& groups, bool recompute)
    : state_(std::make_unique<State>(config, Context<T>{pool, params, unless_alone(groups.tp), nullptr},
                                     unless_alone(groups.data), recompute)) {}

template <class T>
DualTower<T>::~DualTower() = default;

template <class T>
void DualTower<T>::forward(int number, const MicroBatch& batch) {
  State& s = *state_;
  auto& slot = s.slot(number);
  if (batch.pictures() != batch.images)
    throw std::logic_error("model: the pictures of a micro-batch are not where the tower runs");
  UnitHooks& hooks = s.context.params.hooks();
  slot.kept = true;
  slot.pairs = batch.images;
  const T* seen = s.vision.forward(batch.pixels.data(), batch.images, slot.vision);
  hooks.acquire("pairs");
  s.pooled.clear();
  for (int64_t i = 0; i < batch.images; ++i) s.pooled.push_back(i * s.vision.positions());  // the class token
  slot.pictures = s.picture.forward(seen, slot.vision.rows.bounds, s.pooled, slot.picture);
  hooks.release("pairs");
  const T* read = s.text.forward(batch, slot.text);
  hooks.acquire("pairs");
  s.pooled.clear();
  for (size_t i = 1; i < batch.starts.size(); ++i) s.pooled.push_back(batch.starts[i] - 1);  // the end of the text
  slot.captions = s.caption.forward(read, slot.text.rows.bounds, s.pooled, slot.caption);
  hooks.release("pairs");
}

template <class T>
double DualTower<T>::loss(int slots, double scale) {
  State& s = *state_;
  int64_t pairs = 0;
  for (int i = 0; i < slots; ++i) {
    s.slot(i).first = pairs;
    pairs += s.slot(i).pairs;
  }
  const int64_t size = s.picture.size();
  T *pictures = s.pictures.need(pairs * size), *captions = s.captions.need(pairs * size);
  for (int i = 0; i < slots; ++i) {
    const auto& slot = s.slot(i);
    std::copy_n(slot.pictures, slot.pairs * size, pictures + slot.first * size);
    std::copy_n(slot.captions, slot.pairs * size, captions + slot.first * size);
  }
  return s.contrast.run(pictures, captions, pairs, scale);
}

template <class T>
void DualTower<T>::backward(int number, const MicroBatch&) {
  State& s = *state_;
  auto& slot = s.slot(number);
  if (!std::exchange(slot.kept, false)) throw std::logic_error("model: backward without a forward before it");
  UnitHooks& hooks = s.context.params.hooks();
  const int64_t at = slot.first * s.picture.size();
  const auto held = [&](const EncoderRows& rows) { return SequenceParallel<T>(s.context.tp, rows.bounds).held(); };
  hooks.acquire("pairs");
  T* dread = s.gradient.need(std::max(held(slot.text.rows) * s.text_hidden, held(slot.vision.rows) * s.vision_hidden));
  s.caption.backward(s.captions.get() + at, slot.caption, dread);
  hooks.release("pairs");
  s.text.backward(slot.text, dread);
  hooks.acquire("pairs");
  s.picture.backward(s.pictures.get() + at, slot.picture, dread);
  hooks.gradient_ready("pairs");
  hooks.release("pairs");
  s.vision.backward(slot.vision, dread);
}

template class DualTower<float>;
template class DualTower<double>;

}  // namespace mm::model
