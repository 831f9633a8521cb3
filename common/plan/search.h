// SPDX-License-Identifier: Apache-2.0
// The layout that the model of plan.h finds fastest among those whose memory fits: every tp (inside a node), cp, pp, number of chunks (up to
// 12), zero, micro-batch (above 64 samples only doublings) and recomputation for a number of ranks. Exhaustive, but for what cannot win: a layout whose pipeline alone takes longer than
// the best step so far is not looked at further. The encoder is colocated.
#pragma once

#include <optional>

#include "common/plan/plan.h"

namespace mm::plan {

struct Suggestion {
  Parallelism parallelism;
  Plan plan;
};

// None where no layout is possible; `fits` is false where none fits the memory, and the suggestion is the one that needs least.
struct Search {
  std::optional<Suggestion> best;
  bool fits = false;
  int64_t looked_at = 0;
};
Search suggest(const Model& model, const Batch& batch, int ranks, const Numbers& numbers, const Machine& machine);

}  // namespace mm::plan
