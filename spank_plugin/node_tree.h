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

// Trees of the nodes of a step, as srun knows them from one of them: where the site's files differ by node (%n), each its own;
// else all are as this node is, which is one of them where a batch script runs.
class NodeTrees {
 public:
  explicit NodeTrees(const Site& site) : site_(site) {}

  // Nodes have files of their own.
  bool differ() const;
  // Index into maps(), the same for machines of one kind. A node without a file counts as this one. Throws as node_tree does.
  int of(const std::string& node, const std::vector<std::string>& step);
  // Without GPUs where nothing is known.
  const std::vector<placement::NodeMap>& maps() const { return maps_; }

 private:
  int of_this_node(const std::vector<std::string>& step);

  const Site& site_;
  std::vector<placement::NodeMap> maps_;
  std::map<std::string, int> by_node_, by_kind_;
  int this_node_ = -1;
};

// Device numbers of NVIDIA's GPUs with their PCI addresses, from the driver's folder; empty where there is none.
std::map<int, placement::PciAddress> gpu_minors(const std::string& folder = "/proc/driver/nvidia/gpus");

}  // namespace mm::spank
