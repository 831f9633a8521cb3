// SPDX-License-Identifier: Apache-2.0
// Who watches whom in a job of n nodes: everybody where n <= 8, else a chord ring (the nodes 1, 2, 4, ... places away, both ways), so that
// the traffic of a node grows with log n. The relation is symmetric: who beats to a node also watches it.
#pragma once

#include <string>
#include <vector>

namespace mm::agent {

// In the order of the job's nodes, without `self`; empty where `self` is not of the job.
std::vector<std::string> neighbours(const std::vector<std::string>& nodes, const std::string& self);

}  // namespace mm::agent
