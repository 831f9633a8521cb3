// SPDX-License-Identifier: Apache-2.0
// The tree of this node for the placement: the site's file, the agent's copy, or the machine itself.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "common/site.h"
#include "spank_plugin/placement/node_map.h"

namespace mm::spank {

enum class Search { known_only, machine_too };

// Nothing where `known_only` knows nothing. Throws an Error that names the file.
std::optional<placement::NodeMap> node_tree(const Site& site, const std::string& node, Search search);

// Device numbers of NVIDIA's GPUs with their PCI addresses, from the driver's folder; empty where there is none.
std::map<int, placement::PciAddress> gpu_minors(const std::string& folder = "/proc/driver/nvidia/gpus");

}  // namespace mm::spank
