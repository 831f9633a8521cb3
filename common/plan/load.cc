// SPDX-License-Identifier: Apache-2.0
#include "common/plan/load.h"

#include <algorithm>
#include <cmath>

namespace mm::plan {

Load load_of(const Model& m, const Batch& batch, const Parallelism& p, int stage) {
  Load l;
  l.stage = stage;
  l.micro_batches = p.micro_batches(batch);
  const int64_t share = batch.samples / p.mesh.dp;
  l.samples = static_cast<double>(share) / static_cast<double>(l.micro_batches);
  l.share = static_cast<double>(largest_part(share, l.micro_batches)) / l.samples;
  l.length = batch.length;
  l.labels_of_sample = batch.labels;
  if (stage == p.mesh.pp) {
    l.tower = true;
    l.pictures = std::ceil(l.samples * batch.images * p.mesh.dp / p.encoder_dp);
    return l;
  }
  l.first = stage == 0;
  l.last = stage == p.mesh.pp - 1;
  l.tower = l.first && m.has_vision() && p.encoder_ranks() == 0;
  l.layers = layers_of_stage(m.text.count, p, stage);
  l.rows = l.samples * l.length / p.mesh.cp;
  l.labels = l.samples * l.labels_of_sample / p.mesh.cp;
  const int dealt = m.kind == Model::Kind::dual_tower ? 1 : p.mesh.tp * p.mesh.cp;  // a dual tower is cut, not dealt out
  if (l.tower) l.pictures = std::ceil(l.samples * batch.images / dealt);
  return l;
}

namespace {

// The work of the rank with the most; causal attention is shared out evenly over context-parallel ranks.
Work slice(const Layers& l, const LayerWork& w, int tp, int cp) {
  const double heads = static_cast<double>(largest_part(l.heads, tp)) / static_cast<double>(l.heads);
  const double keys = static_cast<double>(std::min(held_kv_heads(l, tp), largest_part(l.heads, tp))) / static_cast<double>(l.kv_heads);
  const double inner = static_cast<double>(largest_part(l.intermediate, tp)) / static_cast<double>(l.intermediate);
  return 1.0 / cp * (heads * (w.query_out + w.attention) + keys * w.key_value + inner * w.mlp);
}

// Elements of a layer that are kept: x, both normed inputs and what is between them of the rows that a rank holds; q, k, v, what attention
// gives, and the MLP's inner values of all rows; statistics.
double saved_of_layer(const Layers& l, int tp, double rows, double wanted) {
  const double h = static_cast<double>(l.hidden), heads = static_cast<double>(largest_part(l.heads, tp)),
               q = heads * static_cast<double>(l.head_size),
               kv = static_cast<double>(std::min(held_kv_heads(l, tp), largest_part(l.heads, tp)) * l.head_size),
               inner = static_cast<double>(largest_part(l.intermediate, tp));
  return rows * (2 * h / tp + 2 * kv) + wanted * (2 * h / tp + 2 * q + heads + (l.gated ? 3 : 2) * inner) +
         (rows + wanted) * (l.norm_bias ? 2 : 1) / tp;
}

// Which tensor parallelism a tower has: none where every rank has pictures of its own.
int tower_tp(const Model& m, const Parallelism& p) {
  if (p.encoder_ranks() > 0) return p.encoder_tp;
  return m.kind == Model::Kind::dual_tower ? p.mesh.tp : 1;
}

double wanted_rows(const Load& l, double rows) {
  return std::min(l.labels, rows);
}

}  // namespace

Work stage_work(const Model& m, const Parallelism& p, const Load& l) {
  Work w;
  if (l.tower) {
    const int tp = tower_tp(m, p);
    const LayerWork one = layer_work(m.vision, static_cast<double>(m.vision_positions()), m.train_vision);
    Work layers = static_cast<double>(m.used_vision_layers) * slice(m.vision, one, tp, 1);
    if (!m.train_vision) layers.backward = 0;
    const Work whole = static_cast<double>(m.used_vision_layers) * one.total();
    Work rest = tower_work(m) + projector_work(m);  // patches and projector: every tensor-parallel rank does its rows
    rest.forward = (rest.forward - whole.forward) / tp;
    rest.backward = (rest.backward - (m.train_vision ? whole.backward : 0)) / tp;
    w = w + l.pictures * (layers + rest);
  }
  if (l.stage == p.mesh.pp) return w;
  const bool dual = m.kind == Model::Kind::dual_tower;
  const int tp = p.mesh.tp, cp = p.mesh.cp;
  const double short_layers = l.last && !dual ? 1 : 0;
  w = w + (l.samples * (static_cast<double>(l.layers) - short_layers)) * slice(m.text, layer_work(m.text, l.length, m.train_text), tp, cp);
  if (short_layers > 0) w = w + l.samples * slice(m.text, last_layer_work(m.text, l.length, l.labels_of_sample, m.train_text), tp, cp);
  if (l.last) {
    const double vocabulary = static_cast<double>(largest_part(m.vocabulary, tp)) / static_cast<double>(m.vocabulary);
    w = w + (dual ? l.samples / tp : l.labels * vocabulary) * head_work(m);
  }
  return w;
}

double recomputed_work(const Model& m, const Parallelism& p, const Load& l) {
  if (!p.recompute) return 0;
  double sum = 0;
  if (l.tower && m.train_vision)
    sum += l.pictures * static_cast<double>(m.used_vision_layers) *
           slice(m.vision, layer_work(m.vision, static_cast<double>(m.vision_positions()), true), tower_tp(m, p), 1).forward;
  if (l.stage == p.mesh.pp) return sum;
  const bool dual = m.kind == Model::Kind::dual_tower;
  const double short_layers = l.last && !dual ? 1 : 0;
  sum += l.samples * (static_cast<double>(l.layers) - short_layers) *
         slice(m.text, layer_work(m.text, l.length, true), p.mesh.tp, p.mesh.cp).forward;
  if (short_layers > 0)
    sum += l.samples * slice(m.text, last_layer_work(m.text, l.length, l.labels_of_sample, true), p.mesh.tp, p.mesh.cp).forward;
  return sum;
}

double saved_elements(const Model& m, const Parallelism& p, const Load& l) {
  double sum = 0;
  if (l.tower) {
    const int tp = tower_tp(m, p);
    const double d = static_cast<double>(m.vision.hidden), n = static_cast<double>(m.vision_positions()) * l.pictures;
    const double layers = static_cast<double>(m.used_vision_layers);
    const double layer = p.recompute || !m.train_vision ? n * d / tp : saved_of_layer(m.vision, tp, n, n);
    sum += m.train_vision || p.recompute ? layers * layer : n * d / tp;
    if (m.train_vision) sum += l.pictures * static_cast<double>(m.patches * m.patch_values) + n * d * (m.class_token ? 2 : 1);
    // The projector's input, its inner values before and after the activation, the features.
    if (m.kind == Model::Kind::vlm)
      sum += l.pictures * static_cast<double>(m.features) * (d + 3 * static_cast<double>(m.text.hidden));
  }
  if (l.stage == p.mesh.pp) return sum;
  const int tp = p.mesh.tp;
  const double h = static_cast<double>(m.text.hidden);
  const bool short_last = l.last && m.kind != Model::Kind::dual_tower;
  const double wanted = short_last ? wanted_rows(l, l.rows) : l.rows;
  if (p.recompute) {
    sum += static_cast<double>(l.layers) * l.rows * h / tp;
  } else {
    sum += (static_cast<double>(l.layers) - 1) * saved_of_layer(m.text, tp, l.rows, l.rows) + saved_of_layer(m.text, tp, l.rows, wanted);
  }
  if (l.last) sum += 2 * wanted * h / tp;  // into and out of the last norm
  return sum;
}

int passes_in_flight(const Parallelism& p, int64_t micro_batches, int stage) {
  const int64_t pp = p.mesh.pp, all = micro_batches * p.chunks;
  // The encoder is one micro-batch ahead of the first stage's first chunk.
  if (stage == pp) {
    const int64_t ahead = p.schedule == Schedule::gpipe ? micro_batches : (p.schedule == Schedule::interleaved ? 2 * pp : pp) + 1;
    return static_cast<int>(std::min(micro_batches, ahead));
  }
  switch (p.schedule) {
    case Schedule::gpipe: return static_cast<int>(all);
    case Schedule::one_f_one_b: return static_cast<int>(std::min(all, pp - stage));
    case Schedule::interleaved: break;
  }
  return static_cast<int>(std::min(all, 2 * (pp - stage - 1) + (p.chunks - 1) * pp + 1));
}

Memory memory_of(const Model& m, const Parallelism& p, const Numbers& numbers, const Load& l, const std::vector<Run>& runs) {
  Memory out;
  int64_t largest = 0;  // unit
  for (const Run& run : runs) {
    const int64_t owned = largest_part(run.size, holders_of(run, p)) * run.times, all = run.size * run.times;
    const int zero = zero_of(run, p);
    out.parameters += (zero >= 3 ? owned : all) * numbers.value;
    if (holders_of(run, p) > 1) largest = std::max(largest, run.size);
    if (!run.trained) continue;
    out.gradients += (zero >= 2 ? owned : all) * numbers.gradient;
    out.moments += (zero >= 1 ? owned : all) * (numbers.moments + numbers.master);
  }
  const double element = static_cast<double>(numbers.activation) * l.share;
  out.activations = static_cast<int64_t>(element * saved_elements(m, p, l) / (l.stage == p.mesh.pp ? 1 : p.chunks));

  // Gathered rows and the gradients of one layer's values; logits; a message each way.
  double buffers = 0;
  if (l.stage < p.mesh.pp) {
    const double h = static_cast<double>(m.text.hidden);
    const double gathered = p.mesh.tp > 1 ? 3 * l.rows * h : 0;
    buffers = gathered + l.rows * h + saved_of_layer(m.text, p.mesh.tp, l.rows, l.rows);
    if (l.last) buffers += wanted_rows(l, l.rows) * static_cast<double>(largest_part(m.vocabulary, p.mesh.tp));
    if (p.mesh.pp > 1) buffers += 4 * l.rows * h / p.mesh.tp;
  }
  if (l.tower) {
    const double n = static_cast<double>(m.vision_positions()) * l.pictures;
    buffers = std::max(buffers, saved_of_layer(m.vision, tower_tp(m, p), n, n));
  }
  out.buffers = static_cast<int64_t>(element * buffers);
  // A unit at work and the next one that is on its way.
  if (p.zero >= 3) out.buffers += 2 * largest * numbers.value;
  if (p.zero >= 2) out.buffers += 2 * largest * numbers.gradient;
  return out;
}

}  // namespace mm::plan
