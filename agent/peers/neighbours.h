// SPDX-License-Identifier: Apache-2.0
// Who watches whom in a job of n nodes: everybody where n <= 8, else four: the nodes next to it in a ring, and those 0.38 n
// places away, both ways. So the traffic of a node is constant, and when neighbours in the ring (a rack, a switch) are lost together, up to a
// third of all, each of them still has two monitors elsewhere. The relation is symmetric: who beats to a node also watches it.
#pragma once

#include <string>
#include <vector>

namespace mm::agent {

// In the order of the job's nodes, without `self`; empty where `self` is not of the job.
std::vector<std::string> neighbours(const std::vector<std::string>& nodes, const std::string& self);

}  // namespace mm::agent
