// SPDX-License-Identifier: Apache-2.0
// Which CPUs and which NUMA node each local rank of a node gets. Pure.
//
// Whole cores of the GPU's NUMA node, those near the GPU first, shared evenly among the ranks that have GPUs there; only CPUs
// that are granted, without the reserved ones. Where the node of a GPU has none of them, the nearest that has. Ranks without a
// GPU, or with one of which the machine hides where it is, are dealt over the NUMA nodes. With fewer cores than ranks, all of
// them share all of these cores, and the operating system sees to it. No rank is left without a CPU while one is granted.
#pragma once

#include <vector>

#include "spank_plugin/placement/node_map.h"

namespace mm::placement {

struct Binding {
  CpuSet cpus;
  int numa = -1;  // whose memory the rank prefers: the operating system's number, -1: no preference
};

struct BindingRequest {
  std::vector<int> gpus;  // of each local rank, an index into the map's; -1: none
  CpuSet granted;         // empty: all that the node has
  CpuSet reserved;        // for the system; ignored where nothing else is granted
  int cpus_per_rank = 0;  // exactly so many, as the user asked for; 0: the fair share
};

std::vector<Binding> bind_ranks(const NodeMap& map, const BindingRequest& request);

// "8" cores: the first so many of the machine, and their other threads; "0-3,64-67": these CPUs. Nothing where it is neither.
std::optional<CpuSet> reserved_cpus(const NodeMap& map, std::string_view text);

}  // namespace mm::placement
