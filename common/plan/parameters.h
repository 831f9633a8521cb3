// SPDX-License-Identifier: Apache-2.0
// How many parameters a rank holds, in runs: the parameters of one unit (a layer, an embedding) that have the same holders. A unit is
// gathered, reduced and released together; the holders of a run share out its gradient sum, and by ZeRO its gradients and values.
#pragma once

#include <cstdint>
#include <vector>

#include "common/plan/plan.h"

namespace mm::plan {

struct Run {
  Group holders = Group::data;  // data, stage (only where tp > 1) or tied
  int64_t size = 0;             // elements of the rank with the most
  int64_t times = 1;            // equal units
  bool trained = true;
  bool own_ranks = false;       // of a tower on ranks of its own: the groups are theirs
};

// A layer's elements on the tensor-parallel rank with the most: those that are cut, and those that every rank holds whole.
struct LayerSize {
  int64_t cut = 0, whole = 0;
};
LayerSize layer_size(const Layers& layers, int tp);

// The largest of `parts` equal parts.
inline int64_t largest_part(int64_t n, int64_t parts) { return (n + parts - 1) / parts; }
// Key and value heads of the rank with the most; all, where a slice of the query heads does not begin and end with whole groups.
int64_t held_kv_heads(const Layers& layers, int tp);

// stage == pp: the encoder's own ranks.
std::vector<Run> runs_of_stage(const Model& model, const Parallelism& parallelism, int stage);
// Ranks that share a run.
int holders_of(const Run& run, const Parallelism& parallelism);
// A tied embedding on two stages is kept whole: the stages come to it at different times.
inline int zero_of(const Run& run, const Parallelism& p) { return run.holders == Group::tied && p.zero > 1 ? 1 : p.zero; }
int64_t parameters_of(const Model& model);
int64_t trained_parameters_of(const Model& model);

}  // namespace mm::plan
