// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/rank_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <numeric>

#include "common/error.h"
#include "spank_plugin/node_tree.h"
#include "spank_plugin/placement/cluster.h"
#include "spank_plugin/placement/job_traffic.h"
#include "spank_plugin/placement/rank_map.h"
#include "spank_plugin/placement/search.h"

namespace mm::spank {
namespace {

constexpr int most_ranks = 1 << 17;

void append(std::vector<std::string>& out, const std::vector<std::string>& nodes, const std::vector<int>& tasks,
            const std::vector<int>& order) {
  out.clear();
  for (const int n : order)
    out.insert(out.end(), static_cast<size_t>(tasks[static_cast<size_t>(n)]), nodes[static_cast<size_t>(n)]);
}

void fill(RankOrder& out, const Job& file, const std::vector<std::string>& nodes, const std::vector<int>& tasks,
          const std::string& topology, const Site& site) {
  placement::SwitchTree switches = placement::parse_topology(topology, "scontrol show topology");
  append(out.node_of_rank, nodes, tasks, placement::walk_order(switches, nodes));
  if (!switches.switches.empty())
    for (const std::string& node : nodes)
      if (switches.leaf(node) < 0) {
        out.warning = fmt::format("{}: in no switch of the topology, so it counts as far from all others", node);
        break;
      }
  const int ranks = std::accumulate(tasks.begin(), tasks.end(), 0);
  if (ranks > most_ranks) return;
  placement::Job job;
  try {
    std::string note;
    job = placement::job_of(file, ranks, site, note);
    if (!note.empty()) out.told = fmt::format("{}: the amounts of a nominal model; ", note);
  } catch (const Error&) {
    return;  // a helper, or a mistake that is told elsewhere
  }
  for (const std::vector<placement::Amount>& stages : job.amounts) {
    double most = 0;
    for (const placement::Amount& a : stages) most = std::max(most, a.bytes);
    out.bytes.push_back(most);
  }
  if (nodes.size() < 2) return;
  placement::NodeMap map;
  if (std::find(nodes.begin(), nodes.end(), this_node()) != nodes.end())
    map = node_tree(site, this_node(), Search::known_only).value_or(placement::NodeMap());
  const int most_tasks = *std::max_element(tasks.begin(), tasks.end());
  // Fewer GPUs than ranks: what is known of this node does not help.
  if (static_cast<int>(map.gpus.size()) < most_tasks) map.gpus.clear();
  placement::Cluster cluster = placement::make_cluster(nodes, tasks, std::move(switches), placement::links_of(site), {map},
                                                       std::vector<int>(nodes.size(), 0));
  placement::set_speeds(cluster.nodes, site.speeds);
  const placement::Placement p = placement::place(cluster, job);
  for (size_t r = 0; r < out.node_of_rank.size(); ++r) out.node_of_rank[r] = nodes[static_cast<size_t>(p.map.node[r])];
  out.told += fmt::format("{} ranks on {} nodes: modelled {:.4f} s of communication a step, {:.4f} s in block order{}", ranks,
                          nodes.size(), p.ours.total, p.block.total, p.is_block ? ", which is kept" : "");
}

}  // namespace

RankOrder order_ranks(const Job& job, const std::vector<std::string>& nodes, const std::vector<int>& tasks,
                      const std::string& topology, const Site& site) noexcept {
  RankOrder out;
  try {
    try {
      fill(out, job, nodes, tasks, topology, site);
      return out;
    } catch (const std::exception& e) {
      out.warning = fmt::format("{}: Slurm's order of nodes stays", e.what());
    }
    std::vector<int> all(nodes.size());
    std::iota(all.begin(), all.end(), 0);
    append(out.node_of_rank, nodes, tasks, all);
    out.bytes.clear();
  } catch (...) {
    out.warning = "no memory for a rank map";
  }
  return out;
}

}  // namespace mm::spank
