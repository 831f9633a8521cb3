// SPDX-License-Identifier: Apache-2.0
#include "common/plan/parameters.h"

#include <algorithm>
#include <utility>

namespace mm::plan {
namespace {

// Whether every slice of part_of(heads, tp) begins at a multiple of the group that shares a key head.
bool deals_out_kv_heads(const Layers& l, int tp) {
  const int64_t group = l.heads / l.kv_heads;
  for (int64_t t = 0; t < tp; ++t)
    if ((t * (l.heads / tp) + std::min(t, l.heads % tp)) % group != 0) return false;
  return true;
}

struct Builder {
  std::vector<Run> runs;

  // A unit's elements by their holders; they are one run where these are the same.
  void add(Group cut_holders, int64_t cut, Group whole_holders, int64_t whole, int64_t times, bool trained) {
    if (cut_holders == whole_holders) cut += std::exchange(whole, 0);
    if (cut > 0 && times > 0) runs.push_back({cut_holders, cut, times, trained});
    if (whole > 0 && times > 0) runs.push_back({whole_holders, whole, times, trained});
  }
  void add(Group holders, int64_t size, bool trained) { add(holders, size, holders, 0, 1, trained); }
  void layers(const Layers& l, int64_t count, int tp, Group cut, Group whole, bool trained) {
    const LayerSize size = layer_size(l, tp);
    add(cut, size.cut, whole, size.whole, count, trained);
  }
};

// The parts of a tower beside its layers. What pools for a contrastive loss is reached by it alone.
struct TowerSize {
  int64_t embed = 0, pool = 0, unused = 0;
};
TowerSize tower_size(const Model& m) {
  const int64_t d = m.vision.hidden, norm = 2 * d;
  TowerSize s;
  s.embed = d * m.patch_values + d + m.vision_positions() * d + (m.class_token ? norm : 0);  // bias or class token
  const int64_t attention = d + 4 * (d * d + d), mlp = 2 * d * m.vision.intermediate + m.vision.intermediate + d;
  const int64_t pooling = norm + (m.vision_head ? attention + norm + mlp : 0);
  (m.kind == Model::Kind::dual_tower ? s.pool : s.unused) = pooling;
  return s;
}

// Of the tower and what leads from it: tp and the groups that hold cut and whole parameters.
void tower(Builder& b, const Model& m, int tp, Group cut, Group whole) {
  const TowerSize s = tower_size(m);
  b.add(whole, s.embed, m.train_vision);
  b.layers(m.vision, m.used_vision_layers, tp, cut, whole, m.train_vision);
  b.layers(m.vision, m.vision.count - m.used_vision_layers, tp, cut, whole, false);
  b.add(whole, s.unused, false);
  const int64_t h = m.text.hidden;
  if (m.kind == Model::Kind::vlm) b.add(whole, m.vision.hidden * h + h + h * h + h, m.train_projector);
}

}  // namespace

int64_t held_kv_heads(const Layers& l, int tp) {
  return deals_out_kv_heads(l, tp) ? largest_part(l.heads, tp) / (l.heads / l.kv_heads) : l.kv_heads;
}

LayerSize layer_size(const Layers& l, int tp) {
  const int64_t h = l.hidden, q = largest_part(l.heads, tp) * l.head_size, kv = l.kv_heads * l.head_size;
  const int64_t inner = largest_part(l.intermediate, tp);
  const int64_t key_value = 2 * (kv * h + (l.qkv_bias ? kv : 0));
  LayerSize s;
  s.cut = q * h + (l.qkv_bias ? q : 0) + q * h + (l.gated ? 3 : 2) * h * inner + (l.mlp_bias ? (l.gated ? 2 : 1) * inner : 0);
  s.whole = (l.out_bias ? h : 0) + (l.mlp_bias ? h : 0) + 2 * h * (l.norm_bias ? 2 : 1);
  if (deals_out_kv_heads(l, tp)) s.cut += key_value / kv * held_kv_heads(l, tp) * l.head_size;
  else s.whole += key_value;
  return s;
}

std::vector<Run> runs_of_stage(const Model& m, const Parallelism& p, int stage) {
  Builder b;
  const int pp = p.mesh.pp, tp = p.mesh.tp;
  const bool own_encoder = p.encoder_ranks() > 0, dual = m.kind == Model::Kind::dual_tower;
  if (stage == pp) {
    tower(b, m, p.encoder_tp, Group::data, p.encoder_tp == 1 ? Group::data : Group::stage);
    for (Run& run : b.runs) run.own_ranks = true;
    return b.runs;
  }
  const bool first = stage == 0, last = stage == pp - 1;
  const Group whole = tp == 1 ? Group::data : Group::stage;
  if (first && m.has_vision() && !own_encoder) {
    // Colocated with a decoder, every rank holds the whole tower and computes its own pictures.
    tower(b, m, dual ? tp : 1, dual ? Group::data : whole, whole);
  }
  const int64_t h = m.text.hidden, embedding = largest_part(m.vocabulary, dual ? 1 : tp) * h;
  const bool shared = m.tied && pp > 1;
  if (first) {
    b.add(shared ? Group::tied : dual ? whole : Group::data, embedding + m.text_positions * h, m.train_text);
  }
  b.layers(m.text, layers_of_stage(m.text.count, p, stage), tp, Group::data, whole, m.train_text);
  if (!last) return b.runs;
  const int64_t norm = h * (m.text.norm_bias ? 2 : 1);
  if (dual) {
    // What leads to the loss: the towers' last norms and pooling, projections, scale and bias.
    const int64_t projections = m.projects_both ? m.projection * (m.vision.hidden + h) : m.projection * (h + 1);
    b.add(whole, tower_size(m).pool + norm + projections + (m.sigmoid_loss ? 2 : 1), m.train_projector);
    return b.runs;
  }
  b.add(Group::data, m.tied ? 0 : embedding, whole, norm, 1, m.train_text);
  if (shared) b.add(Group::tied, embedding, m.train_text);
  return b.runs;
}

int holders_of(const Run& run, const Parallelism& p) {
  const int data = run.own_ranks ? p.encoder_dp : p.mesh.cp * p.mesh.dp, tp = run.own_ranks ? p.encoder_tp : p.mesh.tp;
  switch (run.holders) {
    case Group::stage: return data * tp;
    case Group::tied: return 2 * data;
    default: return data;
  }
}

int64_t parameters_of(const Model& model) {
  int64_t n = 0;
  for (const Run& run : runs_of_stage(model, {}, 0)) n += run.size * run.times;
  return n;
}

int64_t trained_parameters_of(const Model& model) {
  int64_t n = 0;
  for (const Run& run : runs_of_stage(model, {}, 0)) n += run.trained ? run.size * run.times : 0;
  return n;
}

}  // namespace mm::plan
