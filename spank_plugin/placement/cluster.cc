// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/placement/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "common/error.h"
#include "common/hostlist.h"

namespace mm::placement {

void set_speeds(std::vector<Node>& nodes, const std::vector<std::string>& speeds) {
  for (const std::string& text : speeds) {
    const size_t equals = text.rfind('=');
    double flops = 0, bandwidth = 0;
    const char* const end = text.data() + text.size();
    bool good = equals != std::string::npos;
    if (good) {
      auto part = std::from_chars(text.data() + equals + 1, end, flops);
      bandwidth = flops;
      good = part.ec == std::errc();
      if (good && part.ptr != end && *part.ptr == ':') part = std::from_chars(part.ptr + 1, end, bandwidth);
      good = good && part.ec == std::errc() && part.ptr == end && flops > 0 && bandwidth > 0 && flops < 1e6 && bandwidth < 1e6;
    }
    if (!good) throw usage_error(fmt::format("speed '{}': not NODES=FLOPS or NODES=FLOPS:BANDWIDTH", text));
    for (const std::string& name : expand_hostlist(std::string_view(text).substr(0, equals)))
      for (Node& n : nodes)
        if (n.name == name) n.flops = flops, n.memory_bandwidth = bandwidth;
  }
}

Cluster make_cluster(const std::vector<std::string>& names, const std::vector<int>& tasks, SwitchTree switches,
                     const Links& links, const std::vector<NodeMap>& maps, const std::vector<int>& map_of_node) {
  Cluster c;
  c.switches = std::move(switches);
  c.links = links;
  std::map<std::pair<int, int>, int> known;  // map, and slots where it has no GPUs
  for (size_t i = 0; i < names.size(); ++i) {
    const int m = map_of_node[i];
    const NodeMap& map = maps[static_cast<size_t>(m)];
    const auto [at, is_new] = known.emplace(std::pair(m, map.gpus.empty() ? tasks[i] : 0), static_cast<int>(c.hardware.size()));
    if (is_new) {
      c.hardware.push_back(map.gpus.empty() ? unknown_slots(tasks[i], links) : slots_of(map, links));
      c.maps.push_back(map);
    }
    c.nodes.push_back({names[i], tasks[i], at->second, 1, 1});
  }
  return c;
}

}  // namespace mm::placement
