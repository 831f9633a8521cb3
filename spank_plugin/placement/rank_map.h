// SPDX-License-Identifier: Apache-2.0
// The rank map of a job: from layout, traffic and cluster to a node and a GPU for each rank.
//
// How it is found. (1) Blocks: which ranks share a node. All ways to cut the layout's box (tp x cp x dp x pp) into boxes of a
// node's size are priced. (2) Order: the best few are laid out over the nodes in the order in which the switch tree is walked,
// for every nest of loops over the box's axes, of which the two longest may be cut in two (a pod then holds, say, two stages of
// eight replicas); plain, and with whole runs of a loop packed into the switches that can hold them. What an order decides is
// seen at the uplinks alone (uplinks.h), so that hundreds of them cost little. (3) Local search: blocks change places while
// that makes the busiest uplinks less busy; in small jobs ranks do, too. (4) On each node ranks choose GPUs (gpu_choice.h).
// Slurm's block order is always a candidate, so that the result is never worse than it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/plan/stages.h"
#include "spank_plugin/placement/cost.h"

namespace mm::placement {

struct Placement {
  RankMap map;
  std::vector<int> local_rank;  // of each rank on its node: by rank, as Slurm numbers tasks
  Cost ours, block;
  bool is_block = false;  // nothing better was found
};

// What each pipeline stage gets: the layers that the job says, else those that fit the speed of its slowest node; even ones
// where all stages are alike.
struct Stage {
  int layers = 0;
  plan::StageSpeed speed;
};
std::vector<Stage> stages_of(const Cluster& cluster, const Job& job, const RankMap& map);

// Slurm's own: ranks in order over the nodes in order, GPUs in order.
RankMap block_map(const Cluster& cluster, int ranks);

// Throws a usage Error with the numbers where the nodes have fewer slots than there are ranks.
Placement place(const Cluster& cluster, const Job& job);

// After nodes were lost: `before` names the node of each rank, as it was. A rank whose node is still there stays; the others go
// to free slots, where they cost least. Throws a usage Error where there are too few.
Placement place_again(const Cluster& cluster, const Job& job, const std::vector<std::string>& before);

}  // namespace mm::placement
