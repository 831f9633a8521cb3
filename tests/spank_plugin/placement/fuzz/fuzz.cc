// SPDX-License-Identifier: Apache-2.0
// make fuzz-placement: libFuzzer on every reader of text that others write: XML, NCCL's topologies, topology.conf, host lists,
// lists and masks of CPUs, PCI addresses, counts of tasks. The first byte chooses the reader. What is accepted must keep what
// its header promises; all else must be an Error.
#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>

#include "common/error.h"
#include "common/hostlist.h"
#include "spank_plugin/node_order.h"
#include "spank_plugin/placement/binding.h"
#include "spank_plugin/placement/nccl_topology.h"
#include "spank_plugin/placement/node_map.h"
#include "spank_plugin/placement/switch_tree.h"
#include "spank_plugin/placement/xml.h"

namespace {

using namespace mm;
using namespace mm::placement;

void require(bool holds) {
  if (!holds) std::abort();
}

void read_xml(const std::string& text) {
  const std::string once = format_xml(parse_xml(text, "fuzz"));
  require(format_xml(parse_xml(once, "fuzz")) == once);
}

// Every GPU once, each with every NIC once; every rank with a CPU where there is one.
void read_nccl(const std::string& text) {
  const NodeMap map = map_node(read_nccl_xml(parse_xml(text, "fuzz"), "fuzz"));
  std::set<std::string> ids;
  BindingRequest request;
  for (size_t i = 0; i < map.gpus.size(); ++i) {
    const Gpu& g = map.gpus[i];
    require(ids.insert(g.id).second);
    require(std::set<int>(g.nics.begin(), g.nics.end()).size() == map.nics.size() && g.nics.size() == map.nics.size());
    require(g.near.size() == map.gpus.size() && g.peer.size() == map.gpus.size());
    request.gpus.push_back(static_cast<int>(i));
  }
  for (const Binding& b : bind_ranks(map, request)) {
    require(map.allowed.empty() || !b.cpus.empty());
    require(map.allowed.includes(b.cpus));
  }
}

void read_tree(const std::string& text) {
  const SwitchTree tree = parse_topology(text, "fuzz");
  const int count = static_cast<int>(tree.switches.size());
  for (const SwitchTree::Switch& s : tree.switches) {
    int steps = 0;
    for (int p = s.parent; p >= 0; p = tree.switches[static_cast<size_t>(p)].parent) require(++steps <= count && p < count);
    require(steps == s.depth);
  }
  std::vector<std::string> nodes = {"nowhere"};
  for (const auto& [node, leaf] : tree.leaf_of) {
    require(leaf >= 0 && leaf < count);
    if (nodes.size() < 100) nodes.push_back(node);
  }
  std::vector<int> order = walk_order(tree, nodes);
  require(order.back() == 0);
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < order.size(); ++i) require(order[i] == static_cast<int>(i));
}

void read_lists(const std::string& text) {
  if (const auto set = parse_list(text)) require(parse_list(format_list(*set)) == *set);
  if (const auto set = parse_mask(text)) require(set->members().size() == static_cast<size_t>(set->count()));
  if (const auto address = parse_address(text)) require(parse_address(format_address(*address)) == *address);
  if (const auto counts = spank::expand_counts(text)) require(counts->size() <= 65536);
}

void read_hosts(const std::string& text) {
  const std::vector<std::string> hosts = expand_hostlist(text);
  require(hosts.size() <= 65536);
  require(spank::first_mentions(hosts).size() <= hosts.size());
  spank::nodes_of_host_file(text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0] % 5) {
      case 0:
        read_xml(text);
        break;
      case 1:
        read_nccl(text);
        break;
      case 2:
        read_tree(text);
        break;
      case 3:
        read_lists(text);
        break;
      case 4:
        read_hosts(text);
        break;
    }
  } catch (const Error&) {
  }
  return 0;
}
