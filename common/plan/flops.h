// SPDX-License-Identifier: Apache-2.0
// Floating-point operations of matrix products, a multiplication and an addition each. Causal attention counts the half of its square that is
// needed. Norms, activations and the optimizer are not counted. Only what a label sees counts: a sequence ends at its last label, and of the
// last layer's positions without a label there are keys and values alone.
#pragma once

#include <cstdint>
#include <span>

#include "common/plan/model.h"

namespace mm::plan {

struct Work {
  double forward = 0, backward = 0;
  double total() const { return forward + backward; }
};
inline Work operator+(Work a, Work b) { return {a.forward + b.forward, a.backward + b.backward}; }
inline Work operator*(double n, Work w) { return {n * w.forward, n * w.backward}; }

// A layer over a sequence of `length` positions. Parts of it, because tensor parallelism may deal them out unevenly.
struct LayerWork {
  Work query_out;  // products of q and out
  Work key_value;
  Work attention;
  Work mlp;
  Work total() const { return query_out + key_value + attention + mlp; }
};
LayerWork layer_work(const Layers& layers, double length, bool trained);
// The last layer, of which `labels` positions at the end are wanted.
LayerWork last_layer_work(const Layers& layers, double length, double labels, bool trained);
// Of a picture: patches and the layers used; then the projector, or the projection into the shared space.
Work tower_work(const Model& model);
Work projector_work(const Model& model);
// Of a label: logits.
Work head_work(const Model& model);

// What a batch takes as the trainer computes it, without recomputation: what MFU counts. `lengths` are positions of its sequences, pictures'
// included; labels are taken to be spread over the sequences by length.
double flops_of_batch(const Model& model, int64_t images, std::span<const int64_t> lengths, int64_t labels);

}  // namespace mm::plan
