// SPDX-License-Identifier: Apache-2.0
// Floating-point operations of matrix products, a multiplication and an addition each. Causal attention counts the half of its square that is
// computed. Norms, activations and the optimizer are not counted. Only what a label sees: the last layer's queries, attention, output and
// MLP are of labelled positions, keys and values of all.
#pragma once

#include <cstdint>
#include <span>

#include "common/plan/model.h"

namespace mm::plan {

// Forward of a layer over one sequence of `length` positions, of which the last layer computes `rows`.
double attention_flops(const Layers& layers, double length, double rows);
double layer_flops(const Layers& layers, double length, double rows);
// Forward of one picture: tower up to the layer used, and (vlm) the projector.
double image_flops(const Model& model);

// Forward and backward of a batch as the trainer computes it, without recomputation: what MFU counts. `lengths` are the sequences' positions,
// pictures' included. A frozen part has no product for its weights' gradients; a tower that is frozen has no backward.
double flops_of_batch(const Model& model, int64_t images, std::span<const int64_t> lengths, int64_t labels);

}  // namespace mm::plan
