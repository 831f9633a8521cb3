// SPDX-License-Identifier: Apache-2.0
// A Cluster from what is known of nodes: names, tasks, trees, speeds.
#pragma once

#include <string>
#include <vector>

#include "spank_plugin/placement/cost.h"

namespace mm::placement {

// "n[1-4]=0.5" or "n[1-4]=0.5:0.8" (FLOP/s, memory bandwidth) to the nodes that they name. Throws a usage Error that quotes it.
void set_speeds(std::vector<Node>& nodes, const std::vector<std::string>& speeds);

// `tasks[i]` ranks on `names[i]`, which is as maps[map_of_node[i]] says. Where a map has no GPUs, the node's slots are alike
// and share a NIC.
Cluster make_cluster(const std::vector<std::string>& names, const std::vector<int>& tasks, SwitchTree switches,
                     const Links& links, const std::vector<NodeMap>& maps, const std::vector<int>& map_of_node);

}  // namespace mm::placement
