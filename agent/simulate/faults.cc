// SPDX-License-Identifier: Apache-2.0
#include "agent/simulate/faults.h"

#include <algorithm>

#include "common/error.h"

namespace mm::simulate {

const std::vector<Cause>& causes() {
  static const std::vector<Cause> all = {
      {"GPU", "gpu", Sign::incident, 148 + 19 + 17 + 6},
      {"GPU memory", "gpu", Sign::incident, 72},
      {"network", "nic", Sign::incident, 35 + 7},
      {"host", "node", Sign::silence, 32 + 3 + 3 + 2 + 2 + 2 + 2},
      {"software", "app", Sign::crash, 54 + 2},
      {"silent corruption", "app", Sign::crash, 6},
      {"NCCL timeout", "app", Sign::hang, 7},
  };
  return all;
}

const std::vector<Rate>& rates() {
  static const std::vector<Rate> all = {
      {"rsc1", "6.50 failures in 1,000 node-days: Meta RSC-1, arXiv 2410.21680", 6.50e-3},
      {"rsc2", "2.34 failures in 1,000 node-days: Meta RSC-2, arXiv 2410.21680", 2.34e-3},
      {"llama3", "419 interruptions in 54 days on 16,384 GPUs: arXiv 2407.21783", 419.0 / 54 / (16384 / gpus_per_node)},
  };
  return all;
}

const Rate& rate_named(const std::string& name) {
  std::string known;
  for (const Rate& rate : rates()) {
    if (rate.name == name) return rate;
    known += (known.empty() ? "" : ", ") + rate.name;
  }
  throw usage_error("mm-run simulate: --rate " + name + ": not one of " + known);
}

Fault draw(std::mt19937_64& random, int nodes) {
  std::vector<double> weights;
  for (const Cause& cause : causes()) weights.push_back(cause.weight);
  const size_t which = std::discrete_distribution<size_t>(weights.begin(), weights.end())(random);
  return {&causes()[which], std::uniform_int_distribution<int>(0, nodes - 1)(random)};
}

}  // namespace mm::simulate
