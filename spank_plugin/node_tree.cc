// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/node_tree.h"

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
