// SPDX-License-Identifier: Apache-2.0
// The network's switches as Slurm knows them: topology/tree or topology/block, as topology.conf has it or `scontrol show
// topology` prints it. Hostile text gives a smaller tree, or an Error that names source and line; never a cycle.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace mm::placement {

struct SwitchTree {
  struct Switch {
    std::string name;
    int parent = -1;  // -1: a root
    int depth = 0;    // of a root 0
  };
  std::vector<Switch> switches;
  std::unordered_map<std::string, int> leaf_of;  // the switch to which a node is cabled

  int leaf(const std::string& node) const;  // -1: in none
};

// Lines of NAME=VALUE words; SwitchName with Nodes or Switches, or BlockName with Nodes. '#' begins a comment. A node that
// several switches list belongs to the one that lists fewest (a switch above repeats what its children have).
SwitchTree parse_topology(std::string_view text, const std::string& source);

// Node indices in the order in which the tree is walked, so that nodes of a switch are neighbours; nodes in no switch stay
// behind.
std::vector<int> walk_order(const SwitchTree& tree, const std::vector<std::string>& nodes);

}  // namespace mm::placement
