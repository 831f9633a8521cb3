// SPDX-License-Identifier: Apache-2.0
// What fails, and how often. Faults of nodes are independent, and come at a constant rate.
#pragma once

#include <random>
#include <string>
#include <vector>

namespace mm::simulate {

// By what the agents see of it.
enum class Sign {
  incident,  // an agent tells of its node's hardware
  silence,   // the node is gone
  crash,     // a rank dies, and nothing explains why
  hang,      // a rank makes no progress
};

struct Cause {
  std::string name;
  std::string klass;  // of the incident
  Sign sign = Sign::crash;
  double weight = 0;
};

// Of 419 unexpected interruptions in 54 days on 16,384 GPUs (The Llama 3 Herd of Models, arXiv 2407.21783, table 5), by cause;
// software bugs and silent corruption crash a rank, host maintenance and faults of the host take the node away.
const std::vector<Cause>& causes();

// A named rate of failures of nodes of eight GPUs.
struct Rate {
  std::string name, source;
  double per_node_day = 0;
};
const std::vector<Rate>& rates();
// Throws a usage Error that lists the names.
const Rate& rate_named(const std::string& name);

inline constexpr int gpus_per_node = 8;

struct Fault {
  const Cause* cause = nullptr;
  int node = 0;
};
Fault draw(std::mt19937_64& random, int nodes);

}  // namespace mm::simulate
