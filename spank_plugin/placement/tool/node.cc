// SPDX-License-Identifier: Apache-2.0
// mm-place node: a line for each GPU of a node.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/log.h"
#include "spank_plugin/placement/hwloc_tree.h"
#include "spank_plugin/placement/load.h"
#include "spank_plugin/placement/nccl_topology.h"
#include "spank_plugin/placement/node_map.h"
#include "spank_plugin/placement/tool/verbs.h"

namespace mm::placement::tool {
namespace {

std::vector<std::string> nic_names(const NodeMap& map, const Gpu& gpu) {
  std::vector<std::string> out;
  for (const int k : gpu.nics) out.push_back(map.nics[static_cast<size_t>(k)].name);
  return out;
}

// The other GPUs that have the same first NIC.
std::vector<std::string> sharers(const NodeMap& map, size_t gpu) {
  std::vector<std::string> out;
  if (map.gpus[gpu].nics.empty()) return out;
  for (const int other : map.nics[static_cast<size_t>(map.gpus[gpu].nics.front())].gpus)
    if (static_cast<size_t>(other) != gpu) out.push_back(map.gpus[static_cast<size_t>(other)].id);
  return out;
}

nlohmann::json line(const NodeMap& map, size_t i) {
  const Gpu& g = map.gpus[i];
  nlohmann::json peers = nlohmann::json::object();
  for (size_t j = 0; j < g.peer.size(); ++j)
    if (g.peer[j] > 0) peers[map.gpus[j].id] = g.peer[j];
  return {{"gpu", g.id},
          {"numa", g.numa},
          {"nics", nic_names(map, g)},
          {"cpuset", format_list(g.cpus)},
          {"nic_shared_with", sharers(map, i)},
          {"peer_gb_s", peers},
          {"model", g.model},
          {"vendor", g.vendor}};
}

}  // namespace

int node(const NodeOptions& o) {
  Hardware hardware = o.file.empty() ? read_this_machine(Discovery::full) : load_untrusted_topology(o.file);
  if (!o.nccl.empty()) hardware = merge(std::move(hardware), load_untrusted_topology(o.nccl));
  const NodeMap map = map_node(hardware, o.interfaces);
  if (map.gpus.empty())
    log::info("{}: no GPU among {} devices, {} NUMA nodes, {} cores", map.source, hardware.devices.size(), map.numa.size(),
              map.cores.size());
  if (o.json) {
    for (size_t i = 0; i < map.gpus.size(); ++i)
      fmt::print("{}\n", line(map, i).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return exit_status::ok;
  }
  if (!map.gpus.empty())
    fmt::print("{:<14} {:>4}  {:<28} {:<24} {}\n", "GPU", "NUMA", "CPUs", "NICs, nearest first", "shares its NIC with");
  for (size_t i = 0; i < map.gpus.size(); ++i) {
    const Gpu& g = map.gpus[i];
    fmt::print("{:<14} {:>4}  {:<28} {:<24} {}\n", g.id, g.numa, format_list(g.cpus),
               fmt::format("{}", fmt::join(nic_names(map, g), ",")), fmt::format("{}", fmt::join(sharers(map, i), ",")));
  }
  return exit_status::ok;
}

}  // namespace mm::placement::tool
