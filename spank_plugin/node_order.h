// SPDX-License-Identifier: Apache-2.0
// The order of a step's nodes and the tasks on each: pure functions on Slurm's texts.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mm::spank {

// Nodes in the order in which the switch tree is walked, so that nodes of one switch are neighbours, and nodes of neighbouring
// switches next to them. `topology` is what `scontrol show topology` prints. Nodes that it does not name stay behind, in their
// order.
std::vector<std::string> order_by_switches(const std::vector<std::string>& nodes, std::string_view topology);

// "2(x3),1" -> 2 2 2 1. Nothing where it is malformed.
std::optional<std::vector<int>> expand_counts(std::string_view counts);

// The lines of a host file: nodes[i] once for each of its tasks.
std::string host_file(const std::vector<std::string>& nodes, const std::vector<int>& tasks);
// The nodes of a user's host file ("n1", "n2*4", comments), each once, in the order of first mention.
std::vector<std::string> nodes_of_host_file(std::string_view text);
std::vector<std::string> first_mentions(const std::vector<std::string>& hosts);

}  // namespace mm::spank
