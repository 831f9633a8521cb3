// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/node_tree.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <filesystem>

#include "common/files.h"
#include "spank_plugin/placement/hwloc_tree.h"
#include "spank_plugin/placement/load.h"
#include "spank_plugin/placement/nccl_topology.h"

namespace mm::spank {
namespace {

std::string with_node(std::string path, const std::string& node) {
  for (size_t at = path.find("%n"); at != std::string::npos; at = path.find("%n", at + node.size())) path.replace(at, 2, node);
  return path;
}

}  // namespace

std::optional<placement::NodeMap> node_tree(const Site& site, const std::string& node, Search search) {
  std::optional<placement::Hardware> hardware;
  if (!site.topology.empty()) hardware = placement::load_topology(with_node(site.topology, node));
  if (!hardware) hardware = placement::read_shared(placement::shared_path(site.run_dir, node));
  if (!hardware && search == Search::machine_too) hardware = placement::read_this_machine(placement::Discovery::quick);
  if (!hardware) return {};
  if (!site.nccl_topology.empty())
    hardware = merge(std::move(*hardware), placement::load_topology(with_node(site.nccl_topology, node)));
  return placement::map_node(*hardware, site.training_interfaces);
}

int NodeTrees::of_this_node(const std::vector<std::string>& step) {
  if (this_node_ >= 0) return this_node_;
  placement::NodeMap map;
  if (std::find(step.begin(), step.end(), this_node()) != step.end())
    map = node_tree(site_, this_node(), Search::known_only).value_or(placement::NodeMap());
  maps_.push_back(std::move(map));
  return this_node_ = static_cast<int>(maps_.size()) - 1;
}

bool NodeTrees::differ() const {
  return (site_.topology + site_.nccl_topology).find("%n") != std::string::npos;
}

int NodeTrees::of(const std::string& node, const std::vector<std::string>& step) {
  if (!differ()) return of_this_node(step);
  const auto [at, is_new] = by_node_.emplace(node, -1);
  if (!is_new) return at->second;
  std::string kind;
  std::vector<std::pair<placement::XmlElement, std::string>> files;
  for (const std::string& path : {site_.topology, site_.nccl_topology}) {
    const std::string own = with_node(path, node);
    if (path.empty() || ::access(own.c_str(), F_OK) != 0) continue;
    files.emplace_back(placement::read_topology(own), own);
    kind += placement::kind_of_machine(files.back().first) + "\n";
  }
  if (files.empty()) return at->second = of_this_node(step);
  const auto [known, is_new_kind] = by_kind_.emplace(std::move(kind), static_cast<int>(maps_.size()));
  if (is_new_kind) {
    placement::Hardware hardware = placement::hardware_of(files.front().first, files.front().second);
    if (files.size() > 1) hardware = merge(std::move(hardware), placement::hardware_of(files.back().first, files.back().second));
    maps_.push_back(placement::map_node(hardware, site_.training_interfaces));
  }
  return at->second = known->second;
}

std::map<int, placement::PciAddress> gpu_minors(const std::string& folder) {
  std::map<int, placement::PciAddress> out;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const std::optional<placement::PciAddress> address = placement::parse_address(entry.path().filename().string());
    if (!address) continue;
    try {
      const std::string text = read_file((entry.path() / "information").string());
      const size_t key = text.find("Device Minor:"),
                   digit = key == std::string::npos ? key : text.find_first_of("0123456789", key);
      int minor = 0;
      if (digit != std::string::npos &&
          std::from_chars(text.data() + digit, text.data() + text.size(), minor).ec == std::errc())
        out[minor] = *address;
    } catch (const std::exception&) {
      return {};  // half a table would be worse than none
    }
  }
  return out;
}

}  // namespace mm::spank
