// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/rank_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <unordered_map>

#include "common/error.h"
#include "common/plan/stages.h"
#include "spank_plugin/node_order.h"
#include "spank_plugin/node_tree.h"
#include "spank_plugin/placement/cluster.h"
#include "spank_plugin/placement/gpu_speed.h"
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

// The site's word, else what data sheets say of the nodes' GPUs.
void set_node_speeds(std::vector<placement::Node>& nodes, const std::vector<placement::NodeMap>& maps,
                     const std::vector<int>& map_of_node, const Site& site) {
  if (site.speeds.empty())
    placement::set_model_speeds(nodes, maps, map_of_node);
  else
    placement::set_speeds(nodes, site.speeds);
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
  NodeTrees trees(site);
  std::vector<int> tree_of;
  for (const std::string& node : nodes) tree_of.push_back(trees.of(node, nodes));
  std::vector<placement::NodeMap> maps = trees.maps();
  // Fewer GPUs than ranks: what is known of the node does not help.
  for (size_t i = 0; i < nodes.size(); ++i)
    if (placement::NodeMap& map = maps[static_cast<size_t>(tree_of[i])]; static_cast<int>(map.gpus.size()) < tasks[i])
      map.gpus.clear();
  placement::Cluster cluster =
      placement::make_cluster(nodes, tasks, std::move(switches), placement::links_of(site), maps, tree_of);
  set_node_speeds(cluster.nodes, trees.maps(), tree_of, site);
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

std::string stage_speeds_of(const Job& job, const std::vector<std::string>& node_of_rank, const Site& site) noexcept {
  NodeTrees trees(site);
  if (job.parallel.pp < 2 || (site.speeds.empty() && !trees.differ())) return {};
  try {
    const Layout mesh = job_layout(job, static_cast<int>(node_of_rank.size()));
    std::vector<placement::Node> nodes;
    std::vector<int> tree_of;
    const std::vector<std::string> names = first_mentions(node_of_rank);
    for (const std::string& name : names) {
      nodes.push_back({name, 0, 0, 1, 1});
      tree_of.push_back(site.speeds.empty() ? trees.of(name, names) : 0);
    }
    set_node_speeds(nodes, trees.maps(), tree_of, site);
    std::unordered_map<std::string, plan::StageSpeed> speed_of;
    for (const placement::Node& n : nodes) speed_of[n.name] = {n.flops, n.memory_bandwidth};
    std::vector<plan::StageSpeed> stages(static_cast<size_t>(mesh.pp), {1e300, 1e300});
    for (int r = 0; r < mesh.world_size(); ++r) {
      const plan::StageSpeed& node = speed_of[node_of_rank[static_cast<size_t>(r)]];
      plan::StageSpeed& stage = stages[static_cast<size_t>(mesh.coordinates(r).pp)];
      stage = {std::min(stage.pictures, node.pictures), std::min(stage.text, node.text)};
    }
    const bool alike = std::all_of(stages.begin(), stages.end(), [&](const auto& s) { return s == stages.front(); });
    return alike ? "" : plan::format_stage_speeds(stages);
  } catch (...) {
    return {};  // a helper's tasks, or speeds that cannot be read
  }
}

}  // namespace mm::spank
