// SPDX-License-Identifier: Apache-2.0
// Which GPU of its node each local rank gets. The same pure function serves the plan and, on the node, the plugin, which knows
// the layout and its own ranks only: so both agree without a word.
#pragma once

#include <vector>

#include "spank_plugin/placement/cost.h"

namespace mm::placement {

// The groups of each rank.
class Memberships {
 public:
  struct Seat {
    int family = 0, group = 0, index = 0;
  };
  Memberships(const std::vector<Family>& families, int ranks);
  const std::vector<Family>& families() const { return families_; }
  const Seat* begin(int rank) const { return &seats_[static_cast<size_t>(begin_[static_cast<size_t>(rank)])]; }
  const Seat* end(int rank) const { return &seats_[static_cast<size_t>(begin_[static_cast<size_t>(rank) + 1])]; }

 private:
  const std::vector<Family>& families_;
  std::vector<int> begin_;
  std::vector<Seat> seats_;
};

// What the ranks of a node have to do with one another and with the rest, by local index. Nodes with the same traffic and the
// same hardware choose the same GPUs.
struct NodeTraffic {
  struct Part {
    int family = 0;
    bool leaves = false;     // part of a ring that leaves the node
    std::vector<int> ranks;  // of a ring; two: a hop of a chain; one: a hop of a chain that leaves, or a ring's only rank here
    double bytes = 0;
    friend auto operator<=>(const Part&, const Part&) = default;
  };
  int ranks = 0, families = 0;
  std::vector<Part> parts;
  friend auto operator<=>(const NodeTraffic&, const NodeTraffic&) = default;
};
NodeTraffic node_traffic(const Memberships& memberships, const std::vector<int>& ranks);

// `usable`: GPUs that may be used, at least as many as ranks. The GPU of each rank, deterministic; the order of `usable` is
// kept where nothing is gained by another.
std::vector<int> choose_gpus(const Slots& slots, const Links& links, const NodeTraffic& traffic,
                             const std::vector<int>& usable);

}  // namespace mm::placement
