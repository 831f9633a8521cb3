// SPDX-License-Identifier: Apache-2.0
// A rank map as a picture: switches, below them nodes, in them GPUs with their ranks, coloured by pipeline stage and data
// replica.
#pragma once

#include <string>

#include "spank_plugin/placement/rank_map.h"

namespace mm::placement {

// An SVG document.
std::string draw(const Cluster& cluster, const Job& job, const Placement& placement);

}  // namespace mm::placement
