// SPDX-License-Identifier: Apache-2.0
// What makers' data sheets say of GPUs, for clusters whose nodes are of several generations: only ratios count.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "spank_plugin/placement/cost.h"

namespace mm::placement {

struct GpuSpeed {
  double tflops = 0;     // dense matrix products in 16 bits
  double bandwidth = 0;  // GB/s of its memory
};
// By the name that NVML, a driver or the list of PCI devices gives it; nothing where it is not known.
std::optional<GpuSpeed> speed_of_gpu(std::string_view model);

// Gives nodes the speed of their GPUs, the fastest's being 1, where all nodes' GPUs are known by name; else leaves them alike.
void set_model_speeds(std::vector<Node>& nodes, const std::vector<NodeMap>& maps, const std::vector<int>& map_of_node);

}  // namespace mm::placement
