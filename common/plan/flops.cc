// SPDX-License-Identifier: Apache-2.0
#include "common/plan/flops.h"

#include <algorithm>
#include <numeric>

namespace mm::plan {
namespace {

// Backward of a product: of its input, and of its weights where they are trained.
Work product(double forward, bool trained) {
  return {forward, trained ? 2 * forward : forward};
}
// Both products of attention have two gradients.
Work attention(double forward) {
  return {forward, 2 * forward};
}

}  // namespace

LayerWork layer_work(const Layers& l, double length, bool trained) {
  const double h = static_cast<double>(l.hidden), q = static_cast<double>(l.heads * l.head_size),
               kv = static_cast<double>(l.kv_heads * l.head_size), inner = static_cast<double>(l.intermediate);
  LayerWork w;
  w.query_out = product(2 * length * h * 2 * q, trained);
  w.key_value = product(2 * length * h * 2 * kv, trained);
  w.attention = attention(4 * length * length * q * (l.causal ? 0.5 : 1));
  w.mlp = product(2 * length * h * inner * (l.gated ? 3 : 2), trained);
  return w;
}

LayerWork last_layer_work(const Layers& l, double length, double labels, bool trained) {
  LayerWork w = layer_work(l, length, trained);
  if (length <= 0) return w;
  const double rows = std::min(labels, length), share = rows / length;
  w.query_out = share * w.query_out;
  w.mlp = share * w.mlp;
  // Of the triangle's area length^2 / 2, without the part above the first wanted row.
  w.attention = (l.causal ? 1 - (1 - share) * (1 - share) : share) * w.attention;
  return w;
}

Work tower_work(const Model& m) {
  if (!m.has_vision()) return {};
  const double d = static_cast<double>(m.vision.hidden);
  const double patches = 2 * static_cast<double>(m.patches * m.patch_values) * d;
  Work layers = static_cast<double>(m.used_vision_layers) *
                layer_work(m.vision, static_cast<double>(m.vision_positions()), m.train_vision).total();
  if (!m.train_vision) return {patches + layers.forward, 0};
  // Pixels have no gradient, and nothing before the first layer's q, k and v but patches and positions.
  return Work{patches, patches} + layers;
}

Work projector_work(const Model& m) {
  if (m.kind == Model::Kind::text) return {};
  const double d = static_cast<double>(m.vision.hidden), h = static_cast<double>(m.text.hidden);
  if (m.kind == Model::Kind::dual_tower)
    return m.projects_both ? product(2 * d * static_cast<double>(m.projection), m.train_projector) : Work{};
  const double features = static_cast<double>(m.features);
  const double first = 2 * features * d * h, second = 2 * features * h * h;
  const double to_tower = m.train_vision ? first : 0;
  if (m.train_projector) return {first + second, first + to_tower + 2 * second};
  return {first + second, m.train_vision ? first + second : 0};
}

Work head_work(const Model& m) {
  if (m.kind == Model::Kind::dual_tower) return product(2 * static_cast<double>(m.text.hidden * m.projection), m.train_projector);
  return product(2 * static_cast<double>(m.text.hidden * m.vocabulary), m.train_text);
}

double flops_of_batch(const Model& m, int64_t images, std::span<const int64_t> lengths, int64_t labels) {
  Work sum = static_cast<double>(images) * (tower_work(m) + projector_work(m));
  const double positions = static_cast<double>(std::reduce(lengths.begin(), lengths.end()));
  const double wanted = static_cast<double>(labels);
  const bool dual = m.kind == Model::Kind::dual_tower;
  for (const int64_t length : lengths) {
    const double n = static_cast<double>(length);
    const double whole_layers = static_cast<double>(m.text.count - (dual ? 0 : 1));
    sum = sum + whole_layers * layer_work(m.text, n, m.train_text).total();
    if (!dual) sum = sum + last_layer_work(m.text, n, wanted * n / positions, m.train_text).total();
  }
  return (sum + (dual ? static_cast<double>(lengths.size()) : wanted) * head_work(m)).total();
}

}  // namespace mm::plan
