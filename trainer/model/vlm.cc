// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/vlm.h"

#include <stdexcept>
#include <utility>

#include "common/error.h"
#include "trainer/model/decoder.h"
#include "trainer/model/vision.h"
#include "trainer/ops/activation.h"
#include "trainer/ops/cross_entropy.h"
#include "trainer/ops/rows.h"

namespace mm::model {
namespace {

// A micro-batch as one run of tokens.
struct Packed {
  std::vector<int64_t> starts;      // sequences are [starts[s], starts[s + 1])
  std::vector<int32_t> ids;         // -1 at image positions: no row of the embedding stands there
  std::vector<int64_t> image_rows;  // where the image positions lie, in order
  std::vector<const data::Image*> images;
  std::vector<int64_t> label_rows;  // positions with a label, and it
  std::vector<int32_t> labels;

  int64_t rows() const { return static_cast<int64_t>(ids.size()); }
};

void refuse(const data::Sample& sample, const std::string& why) {
  throw data_error("model: sample " + sample.key + ": " + why);
}

Packed pack(const VlmConfig& config, std::span<const data::Sample> samples) {
  Packed p;
  p.starts.push_back(0);
  for (const data::Sample& sample : samples) {
    if (sample.labels.size() != sample.ids.size())
      refuse(sample, std::to_string(sample.ids.size()) + " tokens but " + std::to_string(sample.labels.size()) + " labels");
    int64_t positions = 0;
    for (size_t i = 0; i < sample.ids.size(); ++i) {
      const int32_t id = sample.ids[i], label = sample.labels[i];
      if (id < 0 || id >= config.text.vocabulary) refuse(sample, "token " + std::to_string(id) + " is outside the vocabulary");
      if (label != data::no_label) {
        if (label < 0 || label >= config.text.vocabulary)
          refuse(sample, "label " + std::to_string(label) + " is outside the vocabulary");
        p.label_rows.push_back(p.rows());
        p.labels.push_back(label);
      }
      if (id == config.image_token) {
        p.image_rows.push_back(p.rows());
        ++positions;
      }
      p.ids.push_back(id == config.image_token ? -1 : id);
    }
    if (positions != static_cast<int64_t>(sample.images.size()) * config.positions_per_image())
      refuse(sample, std::to_string(positions) + " image positions but " + std::to_string(sample.images.size()) +
                         " images of " + std::to_string(config.positions_per_image()));
    for (const data::Image& image : sample.images) p.images.push_back(&image);
    p.starts.push_back(p.rows());
  }
  return p;
}

}  // namespace

template <class T>
struct Vlm<T>::State {
  VlmConfig config;
  tensor::ThreadPool& pool;
  VisionTower<T> tower;
  Linear<T> projector1, projector2;
  const T* embedding;
  T* embedding_gradient;
  Decoder<T> decoder;
  RmsNorm<T> final_norm;
  Linear<T> head;

  Packed batch;
  tensor::Buffer<T> selected, projected, activated, features;  // the projector, forward
  tensor::Buffer<T> labelled, statistics, normed, logits;      // rows that have a label
  tensor::Buffer<T> gradient, dnormed, dlabelled, dfeatures, dactivated, dtower;
  tensor::Buffer<double> losses;
  bool kept = false;  // what the last forward kept is there for one backward, which uses it up

  State(const VlmConfig& c, ParamStore<T>& params, tensor::ThreadPool& p)
      : config(c), pool(p), tower(c.vision, c.vision_layers, params, p), decoder(c.text, params, p) {
    const ParamAccess<T> access{params};
    const std::string embed = "language_model.model.embed_tokens";
    projector1 = Linear<T>(access, "multi_modal_projector.linear_1");
    projector2 = Linear<T>(access, "multi_modal_projector.linear_2");
    embedding = access.value(embed + ".weight");
    embedding_gradient = access.gradient(embed + ".weight");
    final_norm = RmsNorm<T>(access, "language_model.model.norm", c.text.hidden, c.text.eps);
    head = Linear<T>(access, c.text.tied ? embed : "language_model.lm_head");
  }

  int64_t image_rows() const { return static_cast<int64_t>(batch.image_rows.size()); }
  int64_t tower_rows() const { return static_cast<int64_t>(batch.images.size()) * tower.positions(); }

  // Copies the positions that the decoder takes; the other way leaves 0 at those that it does not.
  void select(const T* hidden, T* to) {
    const int64_t per = config.positions_per_image(), all = tower.positions(), size = config.vision.hidden;
    pool.parallel_for(static_cast<int64_t>(batch.images.size()),
                      [&](int64_t i) { std::copy_n(hidden + (i * all + all - per) * size, per * size, to + i * per * size); });
  }
  void select_backward(const T* from, T* to) {
    const int64_t per = config.positions_per_image(), all = tower.positions(), size = config.vision.hidden;
    pool.parallel_for(static_cast<int64_t>(batch.images.size()), [&](int64_t i) {
      std::fill_n(to + i * all * size, (all - per) * size, T(0));
      std::copy_n(from + i * per * size, per * size, to + (i * all + all - per) * size);
    });
  }

  void image_forward(T* embedded) {
    const int64_t rows = image_rows(), size = config.text.hidden;
    if (rows == 0) return;
    T* chosen = selected.need(rows * config.vision.hidden);
    select(tower.forward(batch.images), chosen);
    projector1.forward(pool, chosen, nullptr, projected.need(rows * size), rows);
    ops::gelu(pool, ops::Gelu::exact, projected.get(), activated.need(rows * size), rows * size);
    projector2.forward(pool, activated.get(), nullptr, features.need(rows * size), rows);
    ops::scatter_rows<T>(pool, features.get(), batch.image_rows, embedded, size);
  }

  void image_backward(const T* dembedded) {
    const int64_t rows = image_rows(), size = config.text.hidden;
    if (rows == 0) return;
    T *dout = dfeatures.need(rows * size), *dmiddle = dactivated.need(rows * size);
    ops::gather_rows<int64_t, T>(pool, dembedded, batch.image_rows, dout, size);
    projector2.backward(pool, activated.get(), dout, dmiddle, rows, false);
    ops::gelu_backward(pool, ops::Gelu::exact, projected.get(), dmiddle, rows * size);
    // dfeatures has room for the narrower or wider gradient of the selected positions once it is used up
    T* dselected = tower.trained() ? dfeatures.need(rows * std::max<int64_t>(size, config.vision.hidden)) : nullptr;
    projector1.backward(pool, selected.get(), dmiddle, dselected, rows, false);
    if (!dselected) return;
    T* dhidden = dtower.need(tower_rows() * config.vision.hidden);
    select_backward(dselected, dhidden);
    tower.backward(dhidden);
  }

  const T* hidden_states() {
    const int64_t size = config.text.hidden;
    T* embedded = decoder.input(batch.rows());
    ops::gather_rows<int32_t, T>(pool, embedding, batch.ids, embedded, size);
    image_forward(embedded);
    return decoder.forward(batch.starts);
  }

  // Logits of the given rows of the hidden states.
  T* head_forward(const T* hidden, std::span<const int64_t> at) {
    const int64_t rows = static_cast<int64_t>(at.size()), size = config.text.hidden;
    ops::gather_rows<int64_t, T>(pool, hidden, at, labelled.need(rows * size), size);
    final_norm.forward(pool, labelled.get(), normed.need(rows * size), statistics.need(rows), rows);
    head.forward(pool, normed.get(), nullptr, logits.need(rows * config.text.vocabulary), rows);
    return logits.get();
  }
};

template <class T>
Vlm<T>::Vlm(const VlmConfig& config, ParamStore<T>& params, tensor::ThreadPool& pool)
    : state_(std::make_unique<State>(config, params, pool)) {}

template <class T>
Vlm<T>::~Vlm() = default;

template <class T>
double Vlm<T>::forward(std::span<const data::Sample> micro_batch) {
  State& s = *state_;
  s.kept = false;
  s.batch = pack(s.config, micro_batch);
  const int64_t rows = static_cast<int64_t>(s.batch.labels.size());
  s.kept = true;
  if (rows == 0) return 0;
  s.head_forward(s.hidden_states(), s.batch.label_rows);
  double* losses = s.losses.need(rows);
  ops::cross_entropy(s.pool, s.logits.get(), s.batch.labels.data(), losses, rows, s.config.text.vocabulary);
  double total = 0;
  for (int64_t r = 0; r < rows; ++r) total += losses[r];
  return total;
}

template <class T>
void Vlm<T>::backward(double scale) {
  State& s = *state_;
  if (!std::exchange(s.kept, false)) throw std::logic_error("model: backward without a forward before it");
  const int64_t rows = static_cast<int64_t>(s.batch.labels.size()), all = s.batch.rows(), size = s.config.text.hidden;
  if (rows == 0) return;
  ops::scale(s.pool, static_cast<T>(scale), s.logits.get(), rows * s.config.text.vocabulary);
  T *dnormed = s.dnormed.need(rows * size), *dlabelled = s.dlabelled.need(rows * size), *gradient = s.gradient.need(all * size);
  s.head.backward(s.pool, s.normed.get(), s.logits.get(), dnormed, rows, false);
  s.final_norm.backward(s.pool, s.labelled.get(), s.statistics.get(), dnormed, dlabelled, rows, false);
  std::fill_n(gradient, all * size, T(0));
  ops::scatter_rows<T>(s.pool, dlabelled, s.batch.label_rows, gradient, size);
  s.decoder.backward(gradient);
  if (s.embedding_gradient) ops::add_to_rows<T>(s.pool, gradient, s.batch.ids, s.embedding_gradient, size);
  s.image_backward(gradient);
}

template <class T>
std::vector<T> Vlm<T>::next_token_logits(const data::Sample& sample) {
  State& s = *state_;
  s.kept = false;
  s.batch = pack(s.config, {&sample, 1});
  if (s.batch.rows() == 0) refuse(sample, "no token");
  const int64_t last = s.batch.rows() - 1;
  const T* logits = s.head_forward(s.hidden_states(), {&last, 1});
  return {logits, logits + s.config.text.vocabulary};
}

template class Vlm<float>;
template class Vlm<double>;

}  // namespace mm::model
