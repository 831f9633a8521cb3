// SPDX-License-Identifier: Apache-2.0
// Which nodes of the allocation the next launch uses. Pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace mm::recovery {

struct NodeChoice {
  std::vector<std::string> nodes;    // one a slot; empty where there are too few
  std::vector<std::string> missing;  // nodes that would be needed and are not usable now
};

// Ranks stay where they were: a slot keeps its node while `usable` holds for it, and else takes the first usable node of
// `allocation` that no slot has. `slots` holds the nodes of the last launch, or those that one would like for the first.
NodeChoice choose_nodes(const std::vector<std::string>& slots, const std::vector<std::string>& allocation,
                        const std::function<bool(const std::string&)>& usable);

}  // namespace mm::recovery
