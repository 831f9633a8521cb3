// SPDX-License-Identifier: Apache-2.0
// The parts of the search for a rank map (rank_map.h tells how they work together).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "spank_plugin/placement/cost.h"
#include "spank_plugin/placement/gpu_choice.h"

namespace mm::placement {

// blocks.cc: ranks that share a node, and where blocks go.

// A box of the mesh's coordinates that fills a node.
struct Box {
  std::array<int, 4> size = {1, 1, 1, 1};  // tp, cp, dp, pp
};
// All boxes of `volume` ranks whose sides divide the mesh's.
std::vector<Box> boxes_of(const Layout& mesh, int volume);
// The blocks of a box in the order in which `axes` (fastest first) counts them; each block's ranks ascend.
std::vector<std::vector<int>> blocks_in_order(const Layout& mesh, const Box& box, const std::array<int, 4>& axes);
// Orders of the axes that differ, given the box: axes along which there is one block only stay behind.
std::vector<std::array<int, 4>> axis_orders(const Layout& mesh, const Box& box);

// A nest of loops over a box's blocks, the fastest first: each goes `count` times in steps of `step` blocks along its axis. An
// axis may be cut into two loops, so that a switch can hold a piece of several axes.
struct Loop {
  int axis = 0, step = 1, count = 1;
};
using Nest = std::vector<Loop>;
// The plain orders of the axes, then those in which one or both of the two longest axes are cut.
std::vector<Nest> nests_of(const Layout& mesh, const Box& box);
// The blocks in the nest's order, as indices into blocks_in_order(mesh, box, {0, 1, 2, 3}).
std::vector<int> blocks_of_nest(const Layout& mesh, const Box& box, const Nest& nest);

// Orders of nodes to lay blocks on. walk: the switch tree's. packed: runs of `unit` nodes below one switch first, at each level
// what is left of the levels below; the rest at the end.
std::vector<int> walk_nodes(const Cluster& cluster);
std::vector<int> packed_nodes(const Pricer& pricer, const std::vector<int>& walk, int unit);

// exchange.cc: local search.

// Blocks of equal size on nodes of equal hardware change places while the busiest uplinks get less busy. `node_of_block` is
// changed.
void exchange_blocks(const Pricer& pricer, const Cost& start, const std::vector<std::vector<int>>& blocks,
                     std::vector<int>& node_of_block);
// Ranks change places, and take free slots, while the cost falls. For small jobs.
void exchange_ranks(Pricer& pricer, RankMap& map, Cost& cost, int most_rounds);

// Sets map.gpu for what map.node says; nodes with the same traffic and hardware are computed once.
class GpuChooser {
 public:
  GpuChooser(const Cluster& cluster, const std::vector<Family>& families, int ranks)
      : cluster_(cluster), memberships_(families, ranks) {}
  void choose(RankMap& map);

 private:
  const Cluster& cluster_;
  Memberships memberships_;
  std::map<std::pair<int, NodeTraffic>, std::vector<int>> known_;
};

}  // namespace mm::placement
