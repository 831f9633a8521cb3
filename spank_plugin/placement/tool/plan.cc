// SPDX-License-Identifier: Apache-2.0
// mm-place plan: a line for each rank of a job.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/error.h"
#include "common/files.h"
#include "common/hostlist.h"
#include "common/log.h"
#include "common/process.h"
#include "spank_plugin/node_order.h"
#include "spank_plugin/placement/binding.h"
#include "spank_plugin/placement/cluster.h"
#include "spank_plugin/placement/draw.h"
#include "spank_plugin/placement/gpu_speed.h"
#include "spank_plugin/placement/hwloc_tree.h"
#include "spank_plugin/placement/job_traffic.h"
#include "spank_plugin/placement/load.h"
#include "spank_plugin/placement/nccl_topology.h"
#include "spank_plugin/placement/rank_map.h"
#include "spank_plugin/placement/tool/verbs.h"

namespace mm::placement::tool {
namespace {

constexpr std::chrono::seconds scontrol_deadline{5};

struct Maps {
  std::vector<NodeMap> maps;
  std::vector<int> of_node;
};

// Trees of the nodes: NODES=FILE for those named, FILE for the rest, else this machine's for all.
Maps read_maps(const PlanOptions& o, const Site& site, const std::vector<std::string>& names) {
  Maps out;
  std::vector<std::string> file_of(names.size());
  for (const std::string& text : o.xml) {
    const size_t equals = text.find('=');
    const std::string file = equals == std::string::npos ? text : text.substr(equals + 1);
    if (equals == std::string::npos) {
      for (std::string& f : file_of)
        if (f.empty()) f = file;
      continue;
    }
    for (const std::string& node : expand_hostlist(std::string_view(text).substr(0, equals))) {
      const auto found = std::find(names.begin(), names.end(), node);
      if (found == names.end()) throw usage_error(fmt::format("--xml {}: {} is none of the nodes", text, node));
      file_of[static_cast<size_t>(found - names.begin())] = file;
    }
  }
  std::map<std::string, int> known;
  for (const std::string& file : file_of) {
    const auto [at, is_new] = known.emplace(file, static_cast<int>(out.maps.size()));
    if (is_new) {
      Hardware h = file.empty() ? read_this_machine(Discovery::full) : load_untrusted_topology(file);
      if (!o.nccl.empty()) h = merge(std::move(h), load_untrusted_topology(o.nccl));
      out.maps.push_back(map_node(h, site.training_interfaces));
    }
    out.of_node.push_back(at->second);
  }
  return out;
}

std::vector<int> tasks_of(const PlanOptions& o, const std::vector<std::string>& names, const Maps& maps) {
  if (o.tasks.empty()) {
    std::vector<int> out;
    for (const int m : maps.of_node) {
      out.push_back(static_cast<int>(maps.maps[static_cast<size_t>(m)].gpus.size()));
      if (out.back() == 0)
        throw usage_error(fmt::format("{}: no GPU in {}: state --tasks-per-node", names[out.size() - 1],
                                      maps.maps[static_cast<size_t>(m)].source));
    }
    return out;
  }
  std::optional<std::vector<int>> counts = spank::expand_counts(o.tasks);
  if (counts && counts->size() == 1) counts->assign(names.size(), counts->front());
  if (!counts || counts->size() != names.size() ||
      std::any_of(counts->begin(), counts->end(), [](int n) { return n < 1 || n > 1024; }))
    throw usage_error(
        fmt::format("--tasks-per-node {}: not a number from 1 to 1,024, nor one for each of {} nodes, such as 8(x3),4", o.tasks,
                    names.size()));
  return *counts;
}

SwitchTree read_switches(const PlanOptions& o) {
  if (!o.topology.empty()) return parse_topology(read_file(o.topology), o.topology);
  try {
    const CommandResult r = run_command({"scontrol", "show", "topology"}, scontrol_deadline);
    if (r.ok()) return parse_topology(r.out, "scontrol show topology");
  } catch (const Error&) {
    // No Slurm here: a flat network.
  }
  return {};
}

// dp is what is left of the tasks; whoever writes it anyway must be right.
std::string take_dp(std::string spec, int& dp) {
  std::string out;
  for (size_t begin = 0; begin <= spec.size();) {
    const size_t end = std::min(spec.find(',', begin), spec.size());
    const std::string item = spec.substr(begin, end - begin);
    begin = end + 1;
    if (item.rfind("dp=", 0) == 0) {
      const auto [at, error] = std::from_chars(item.data() + 3, item.data() + item.size(), dp);
      if (error != std::errc() || at != item.data() + item.size() || dp < 1)
        throw usage_error(fmt::format("{}: not a number of replicas", item));
    } else if (!item.empty()) {
      out += (out.empty() ? "" : ",") + item;
    }
  }
  return out.empty() ? "auto" : out;
}

void set_bytes(Job& job, const std::vector<std::string>& bytes) {
  if (!bytes.empty())
    for (std::vector<Amount>& a : job.amounts) a.clear();
  for (const std::string& text : bytes) {
    const size_t equals = text.find('=');
    Amount amount;
    const char* const end = text.data() + text.size();
    int kind = 0;
    while (kind < kinds && text.substr(0, equals) != name_of(static_cast<Kind>(kind))) ++kind;
    bool good = equals != std::string::npos && kind < kinds;
    if (good) {
      auto part = std::from_chars(text.data() + equals + 1, end, amount.bytes);
      if (part.ec == std::errc() && part.ptr != end && *part.ptr == ':')
        part = std::from_chars(part.ptr + 1, end, amount.calls);
      good = part.ec == std::errc() && part.ptr == end && amount.bytes >= 0 && amount.calls >= 0;
    }
    if (!good)
      throw usage_error(fmt::format(
          "--bytes {}: not KIND=BYTES or KIND=BYTES:CALLS, KIND one of tensor, context, data, pipeline, stage, tied, encoder",
          text));
    job.amounts[static_cast<size_t>(kind)] = {amount};
  }
}

// The node of each rank, from lines that plan --json has printed.
std::vector<std::string> read_before(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw system_error(fmt::format("--before {}", path), errno, exit_status::usage);
  std::map<int, std::string> nodes;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    try {
      const nlohmann::json j = nlohmann::json::parse(line);
      nodes[j.at("rank").get<int>()] = j.at("node").get<std::string>();
    } catch (const nlohmann::json::exception&) {
      throw usage_error(fmt::format("{}:{}: no line of mm-place plan --json", path, number));
    }
  }
  std::vector<std::string> out;
  for (const auto& [rank, node] : nodes) {
    if (rank != static_cast<int>(out.size())) throw usage_error(fmt::format("{}: rank {} is missing", path, out.size()));
    out.push_back(node);
  }
  return out;
}

struct RankPlace {
  std::string gpu, nic;
  int numa = -1;
  std::string cpus;
};

// Devices, NUMA node and CPUs of every rank, node by node.
std::vector<RankPlace> rank_places(const Cluster& cluster, const Placement& p, const Site& site) {
  std::vector<RankPlace> out(p.map.node.size());
  std::vector<std::vector<size_t>> on(cluster.nodes.size());
  for (size_t r = 0; r < p.map.node.size(); ++r) on[static_cast<size_t>(p.map.node[r])].push_back(r);
  std::map<std::pair<int, std::vector<int>>, std::vector<Binding>> known;
  for (size_t n = 0; n < on.size(); ++n) {
    const int hardware = cluster.nodes[n].hardware;
    const NodeMap& map = cluster.maps[static_cast<size_t>(hardware)];
    BindingRequest request;
    for (const size_t r : on[n]) request.gpus.push_back(map.gpus.empty() ? -1 : p.map.gpu[r]);
    const auto [at, is_new] = known.try_emplace({hardware, request.gpus});
    if (is_new) {
      const std::optional<CpuSet> reserved = reserved_cpus(map, site.reserved_cores.empty() ? "0" : site.reserved_cores);
      if (!reserved)
        throw usage_error(
            fmt::format("placement.reserved_cores '{}': neither a number of cores nor a list of CPUs", site.reserved_cores));
      request.reserved = *reserved;
      at->second = bind_ranks(map, request);
    }
    for (size_t i = 0; i < on[n].size(); ++i) {
      RankPlace& place = out[on[n][i]];
      place.numa = at->second[i].numa;
      place.cpus = format_list(at->second[i].cpus);
      if (request.gpus[i] >= 0) {
        const Gpu& gpu = map.gpus[static_cast<size_t>(request.gpus[i])];
        place.gpu = gpu.id;
        if (place.numa < 0) place.numa = gpu.numa;  // bound to several nodes' CPUs
        if (!gpu.nics.empty()) place.nic = map.nics[static_cast<size_t>(gpu.nics.front())].name;
      } else if (!map.nics.empty()) {
        place.nic = map.nics.front().name;
      }
    }
  }
  return out;
}

nlohmann::json seconds_of(const Cost& cost) {
  nlohmann::json out = {{"total", cost.total}};
  for (int k = 0; k < kinds; ++k)
    if (cost.seconds[static_cast<size_t>(k)] > 0) out[name_of(static_cast<Kind>(k))] = cost.seconds[static_cast<size_t>(k)];
  if (cost.compute > 0) out["compute"] = cost.compute;
  return out;
}

void print(const PlanOptions& o, const Cluster& cluster, const Job& job, const Placement& p,
           const std::vector<RankPlace>& places) {
  const std::vector<Stage> stages = stages_of(cluster, job, p.map);
  if (!o.json)
    fmt::print("{:>6} {:<16} {:>5} {:<14} {:<14} {:>4} {:>4} {:>4} {:>4} {:>4}  {}\n", "rank", "node", "local", "GPU", "NIC",
               "NUMA", "tp", "cp", "dp", "pp", "CPUs");
  for (int r = 0; r < job.ranks(); ++r) {
    const size_t rank = static_cast<size_t>(r);
    const bool encoder = r >= job.mesh.world_size();
    const int e = r - job.mesh.world_size();
    const Coordinates c =
        encoder ? Coordinates{e % job.encoder_tp, 0, e / job.encoder_tp, job.mesh.pp} : job.mesh.coordinates(r);
    const std::string& node = cluster.nodes[static_cast<size_t>(p.map.node[rank])].name;
    const RankPlace& place = places[rank];
    if (!o.json) {
      fmt::print("{:>6} {:<16} {:>5} {:<14} {:<14} {:>4} {:>4} {:>4} {:>4} {:>4}  {}\n", r, node, p.local_rank[rank], place.gpu,
                 place.nic, place.numa, c.tp, c.cp, c.dp, c.pp, place.cpus);
      continue;
    }
    nlohmann::json line = {{"rank", r},
                           {"node", node},
                           {"local_rank", p.local_rank[rank]},
                           {"gpu", place.gpu},
                           {"nic", place.nic},
                           {"numa", place.numa},
                           {"cpuset", place.cpus},
                           {"tp", c.tp},
                           {"pp", c.pp},
                           {"dp", c.dp},
                           {"cp", c.cp}};
    if (encoder)
      line["encoder"] = true;
    else
      line["layers"] = stages[static_cast<size_t>(c.pp)].layers;
    if (r == 0) line["modelled_seconds"] = {{"ours", seconds_of(p.ours)}, {"block", seconds_of(p.block)}};
    fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
}

void summary(const Placement& p, const Cluster& cluster, const Job& job) {
  log::info("{:.4f} s of communication a step, {:.4f} s in Slurm's block order: {:.3f}{}", p.ours.total, p.block.total,
            p.block.total > 0 ? p.ours.total / p.block.total : 1, p.is_block ? " (nothing better was found)" : "");
  for (int k = 0; k < kinds; ++k)
    if (const size_t i = static_cast<size_t>(k); p.block.seconds[i] > 0)
      log::info("  {}: {:.4f} s, block {:.4f} s", name_of(static_cast<Kind>(k)), p.ours.seconds[i], p.block.seconds[i]);
  if (p.ours.compute == 0) return;
  std::string layers;
  for (const Stage& s : stages_of(cluster, job, p.map)) layers += fmt::format(" {}", s.layers);
  log::info("  computation of the slowest stage: {:.4f} s, block {:.4f} s; layers of the stages:{}", p.ours.compute,
            p.block.compute, layers);
}

}  // namespace

int plan(const PlanOptions& o) {
  Site site = load_site(o.config.empty() ? std::string(Site::default_path) : o.config);
  int dp = 0;
  const mm::Spec spec = parse_spec(take_dp(o.spec, dp));
  if (spec.kind == mm::Spec::Kind::off) throw usage_error("off: nothing is placed");
  const char* allocation = std::getenv("SLURM_JOB_NODELIST");
  const std::string list = !o.nodes.empty() ? o.nodes : allocation != nullptr ? allocation : this_node();
  const std::vector<std::string> names = expand_hostlist(list);
  if (names.empty()) throw usage_error(fmt::format("--nodes '{}': no node", list));
  if (spank::first_mentions(names).size() != names.size())
    throw usage_error(fmt::format("--nodes {}: a node is there twice", list));
  const Maps maps = read_maps(o, site, names);
  const std::vector<int> tasks = tasks_of(o, names, maps);
  const int slots = std::accumulate(tasks.begin(), tasks.end(), 0),
            model = spec.job.parallel.tp * spec.job.parallel.cp * spec.job.parallel.pp;
  const int ranks = o.ranks > 0 ? o.ranks : dp > 0 ? dp * model + encoder_ranks(spec.job) : slots;
  std::string note;
  Job job = job_of(spec.job, ranks, site, note);
  if (dp > 0 && dp != job.mesh.dp) throw usage_error(fmt::format("dp={}: {} ranks make dp {}", dp, ranks, job.mesh.dp));
  if (!note.empty()) log::warn("{}: amounts of a nominal model", note);
  set_bytes(job, o.bytes);
  SwitchTree switches = read_switches(o);
  if (!switches.switches.empty())
    for (const std::string& name : names)
      if (switches.leaf(name) < 0) log::warn("{}: in no switch of the topology", name);
  Links links = links_of(site);
  if (o.oversubscription > 0) links.oversubscription = o.oversubscription;
  Cluster cluster = make_cluster(names, tasks, std::move(switches), links, maps.maps, maps.of_node);
  if (site.speeds.empty() && o.speeds.empty()) set_model_speeds(cluster.nodes, maps.maps, maps.of_node);
  set_speeds(cluster.nodes, site.speeds);
  set_speeds(cluster.nodes, o.speeds);
  const Placement p = o.before.empty() ? place(cluster, job) : place_again(cluster, job, read_before(o.before));
  print(o, cluster, job, p, rank_places(cluster, p, site));
  summary(p, cluster, job);
  if (!o.draw.empty()) {
    std::ofstream out(o.draw);
    out << draw(cluster, job, p);
    if (!out.flush()) throw system_error(fmt::format("--draw {}: write", o.draw), errno);
  }
  return exit_status::ok;
}

}  // namespace mm::placement::tool
