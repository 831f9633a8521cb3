// SPDX-License-Identifier: Apache-2.0
// Who talks to whom in a step, and how much: the groups of a layout with the bytes that each of their ranks sends.
#pragma once

#include <string>
#include <vector>

#include "common/layout.h"

namespace mm::placement {

// The groups' kinds, as common/plan names them. stage: all ranks of a pipeline stage; tied: a rank of the first stage and its
// like of the last; encoder: the encoder's ranks and those of all first stages, which they feed.
enum class Kind { tensor, context, data, pipeline, stage, tied, encoder };
inline constexpr int kinds = 7;
const char* name_of(Kind kind);

// What one rank of a group sends in a step, and in how many calls. Collectives count as rings: a gather of n bytes sends
// n (size - 1) / size from each rank. pipeline: to one neighbour, one way.
struct Amount {
  double bytes = 0, calls = 0;
};

struct Job {
  Layout mesh;
  int encoder_tp = 0, encoder_dp = 0;  // the encoder's own ranks come after the mesh's
  int layers = 32;                     // of the decoder
  std::vector<int> stage_layers;       // of each stage, where the job says so
  int least_layers = 1;                // of a stage: its chunks
  double image_layers = 0;             // work on pictures, in layers; on stage 0, or on the encoder's own ranks
  double head_layers = 0;              // what the last stage does besides its layers
  double layer_seconds = 0;            // a step's work of one layer on a node of speed 1; 0: speeds do not matter
  std::vector<std::vector<Amount>> amounts =
      std::vector<std::vector<Amount>>(kinds);  // [kind][stage]; one entry: for all stages

  int encoder_ranks() const { return encoder_tp * encoder_dp; }
  int ranks() const { return mesh.world_size() + encoder_ranks(); }
  Amount amount(Kind kind, int stage) const;
};

// Sets amounts of a nominal decoder: 32 layers of width 4,096, bfloat16, sequences of 4,096 tokens, two micro-batches a stage.
// For a job of which only the layout is known: the proportions are those of any large transformer.
void set_nominal_amounts(Job& job);

// The groups of one kind, flat: group g is members[begin[g]] to members[begin[g + 1]].
struct Family {
  Kind kind = Kind::tensor;
  bool ring = true;  // else a chain: each member talks to the next, both ways
  std::vector<int> members, begin = {0};
  std::vector<Amount> amounts;  // of each group
  int size() const { return static_cast<int>(amounts.size()); }
};
// Only families that talk: two or more members, and bytes or calls.
std::vector<Family> families_of(const Job& job);

}  // namespace mm::placement
