// SPDX-License-Identifier: Apache-2.0
// Nodes and the tasks on each, from Slurm's texts. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mm::spank {

// "2(x3),1" -> 2 2 2 1. Nothing where it is malformed.
std::optional<std::vector<int>> expand_counts(std::string_view counts);

// The nodes of a user's host file ("n1", "n2*4", comments), each once, in the order of first mention.
std::vector<std::string> nodes_of_host_file(std::string_view text);
std::vector<std::string> first_mentions(const std::vector<std::string>& hosts);

}  // namespace mm::spank
