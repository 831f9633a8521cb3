// SPDX-License-Identifier: Apache-2.0
// bench-placement: how good rank maps are, and how long they take. Modelled times are those of cost.h for both sides.
//   exhaustive  every case of up to 8 slots against all permutations
//   large       1,024 GPUs, 30 random fragmented allocations of a three-level tree, against Slurm's block order
//   time        seconds to compute, on one core
#include <fmt/format.h>

#include <time.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "spank_plugin/placement/load.h"
#include "spank_plugin/placement/rank_map.h"

namespace {

using namespace mm;
using namespace mm::placement;

// Eight GPUs that all reach each other at 450 GB/s, each with a NIC of 50 GB/s.
Slots hgx() {
  Slots s = unknown_slots(8, {});
  std::fill(s.bandwidth.begin(), s.bandwidth.end(), 450.0);
  std::iota(s.nic.begin(), s.nic.end(), 0);
  s.nics.assign(8, 50.0);
  return s;
}

// Pods of four leaves of sixteen nodes.
SwitchTree three_levels(int nodes) {
  std::string text;
  const int leaves = nodes / 16, pods = (leaves + 3) / 4;
  for (int l = 0; l < leaves; ++l) text += fmt::format("SwitchName=leaf{} Nodes=n[{:05}-{:05}]\n", l, l * 16, l * 16 + 15);
  for (int p = 0; p < pods; ++p)
    text += fmt::format("SwitchName=pod{} Switches=leaf[{}-{}]\n", p, p * 4, std::min(leaves, p * 4 + 4) - 1);
  text += fmt::format("SwitchName=core Switches=pod[0-{}]\n", pods - 1);
  return parse_topology(text, "bench");
}

// What is left free between other jobs: runs of nodes of random length, until there are enough.
std::vector<int> fragments(int all, int wanted, std::mt19937& random) {
  std::vector<bool> taken(static_cast<size_t>(all), false);
  int have = 0;
  while (have < wanted) {
    const int from = static_cast<int>(random() % static_cast<unsigned>(all)), length = 1 + static_cast<int>(random() % 8);
    for (int i = from; i < std::min(all, from + length) && have < wanted; ++i)
      if (!taken[static_cast<size_t>(i)]) taken[static_cast<size_t>(i)] = true, ++have;
  }
  std::vector<int> out;
  for (int i = 0; i < all; ++i)
    if (taken[static_cast<size_t>(i)]) out.push_back(i);
  return out;
}

// Of this thread's processor time: other programs on the machine do not count.
double milliseconds(const std::function<void()>& work) {
  const auto now = [] {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
  };
  const double began = now();
  work();
  return now() - began;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

Job job_of(int tp, int cp, int dp, int pp) {
  Job job;
  job.mesh = {tp, cp, dp, pp};
  set_nominal_amounts(job);
  return job;
}

// Seconds that no order of nodes goes below, given which ranks share a node: what no switch is to blame for, and of each switch
// the rings and chains of one node below it that have more nodes than there are below, each of which leaves and enters once.
double least_seconds(const Cluster& cluster, const Job& job, const Placement& p) {
  const Pricer pricer(cluster, families_of(job));
  std::vector<int> below(static_cast<size_t>(pricer.switches()), 0);
  for (size_t n = 0; n < cluster.nodes.size(); ++n)
    for (int s = pricer.leaf(static_cast<int>(n)); s >= 0; s = pricer.parent(s)) ++below[static_cast<size_t>(s)];
  std::array<double, kinds> least = p.ours.floor;
  for (const Family& f : pricer.families()) {
    // Bytes of each node's groups by how many nodes they have.
    std::vector<std::map<int, double>> of_node(cluster.nodes.size());
    for (int g = 0; g < f.size(); ++g) {
      std::set<int> on;
      for (int i = f.begin[static_cast<size_t>(g)]; i < f.begin[static_cast<size_t>(g) + 1]; ++i)
        on.insert(p.map.node[static_cast<size_t>(f.members[static_cast<size_t>(i)])]);
      for (const int n : on) of_node[static_cast<size_t>(n)][static_cast<int>(on.size())] += f.amounts[static_cast<size_t>(g)].bytes;
    }
    double& seconds = least[static_cast<size_t>(f.kind)];
    for (size_t n = 0; n < of_node.size(); ++n)
      for (int s = pricer.leaf(static_cast<int>(n)); s >= 0; s = pricer.parent(s)) {
        if (pricer.uplink(s) <= 0) continue;
        double bytes = 0;
        for (auto at = of_node[n].upper_bound(below[static_cast<size_t>(s)]); at != of_node[n].end(); ++at) bytes += at->second;
        seconds = std::max(seconds, bytes / pricer.uplink(s));
      }
  }
  return std::accumulate(least.begin(), least.end(), 0.0);
}

void large(bool striped) {
  const SwitchTree tree = three_levels(512);
  fmt::print("\n1,024 GPUs on 128 of 512 nodes; node names {}; 30 allocations: modelled seconds, ours / block\n",
             striped ? "alternate between leaves" : "follow the leaves");
  for (const Job& job : {job_of(8, 1, 32, 4), job_of(4, 1, 32, 8), job_of(8, 2, 16, 4)}) {
    std::mt19937 random(1);
    std::vector<double> ratios, times, ours, block, bounds;
    Cost sum[2];
    for (int round = 0; round < 30; ++round) {
      Cluster cluster;
      cluster.switches = tree;
      cluster.hardware = {hgx()};
      std::vector<int> chosen = fragments(512, 128, random);
      // Striped: consecutive names are consecutive leaves.
      if (striped) std::stable_sort(chosen.begin(), chosen.end(), [](int a, int b) { return a % 16 < b % 16; });
      for (const int n : chosen) cluster.nodes.push_back({fmt::format("n{:05}", n), 8, 0, 1, 1});
      Placement p;
      times.push_back(milliseconds([&] { p = place(cluster, job); }));
      ratios.push_back(p.ours.total / p.block.total);
      ours.push_back(p.ours.total);
      bounds.push_back(least_seconds(cluster, job, p) / p.block.total);
      for (int k = 0; k < kinds; ++k) sum[0].seconds[k] += p.ours.seconds[k] / 30, sum[1].seconds[k] += p.block.seconds[k] / 30;
      block.push_back(p.block.total);
    }
    fmt::print(
        "  tp{} cp{} pp{} dp{}: ours {:.3f} s, block {:.3f} s, ratio median {:.3f} (best {:.3f}, worst {:.3f}; no order is below "
        "{:.3f}; limit {}); computed in {:.1f} ms (worst {:.1f})\n",
        job.mesh.tp, job.mesh.cp, job.mesh.pp, job.mesh.dp, median(ours), median(block), median(ratios),
        *std::min_element(ratios.begin(), ratios.end()), *std::max_element(ratios.begin(), ratios.end()), median(bounds),
        striped ? "0.700" : "1.000", median(times), *std::max_element(times.begin(), times.end()));
    for (int k = 0; k < kinds; ++k)
      if (sum[1].seconds[k] > 0)
        fmt::print("    {:<10} {:.4f} s, block {:.4f} s (means)\n", name_of(static_cast<Kind>(k)), sum[0].seconds[k],
                   sum[1].seconds[k]);
  }
}

void time_of(int nodes, const Job& job) {
  Cluster cluster;
  cluster.switches = three_levels(nodes * 2);
  cluster.hardware = {hgx()};
  std::mt19937 random(2);
  for (const int n : fragments(nodes * 2, nodes, random)) cluster.nodes.push_back({fmt::format("n{:05}", n), 8, 0, 1, 1});
  std::vector<double> times;
  Placement p;
  for (int i = 0; i < 5; ++i) times.push_back(milliseconds([&] { p = place(cluster, job); }));
  fmt::print("  {:>6} GPUs tp{} cp{} pp{} dp{}: {:.1f} ms (median of 5), ratio to block {:.3f}\n", nodes * 8, job.mesh.tp,
             job.mesh.cp, job.mesh.pp, job.mesh.dp, median(times), p.ours.total / p.block.total);
}

struct Tally {
  int cases = 0, equal = 0;
  double worst = 1;
};

void exhaustive(const std::string& name, const Cluster& cluster, const Job& job, Tally& tally) {
  std::vector<std::pair<int, int>> slots;
  for (size_t n = 0; n < cluster.nodes.size(); ++n)
    for (int g = 0; g < cluster.nodes[n].slots; ++g) slots.emplace_back(static_cast<int>(n), g);
  const size_t ranks = static_cast<size_t>(job.ranks());
  Pricer pricer(cluster, families_of(job));
  if (pricer.families().empty()) return;
  double least = 1e300;
  RankMap map;
  map.node.resize(ranks);
  map.gpu.resize(ranks);
  do {
    for (size_t r = 0; r < ranks; ++r) map.node[r] = slots[r].first, map.gpu[r] = slots[r].second;
    least = std::min(least, pricer.price(map).total);
  } while (std::next_permutation(slots.begin(), slots.end()));
  const double ratio = place(cluster, job).ours.total / least;
  ++tally.cases;
  if (ratio <= 1 + 1e-9)
    ++tally.equal;
  else
    fmt::print("  {} tp{} cp{} pp{} dp{}: {:.4f} of the optimum\n", name, job.mesh.tp, job.mesh.cp, job.mesh.pp, job.mesh.dp,
               ratio);
  tally.worst = std::max(tally.worst, ratio);
}

// Both sides have the same GPUs to choose from.
Slots first_gpus(const Slots& all, int count) {
  Slots s = all;
  s.gpus = count;
  const size_t n = static_cast<size_t>(count);
  s.bandwidth.resize(n * n);
  s.over_pci.resize(n * n);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j) {
      s.bandwidth[i * n + j] = all.bandwidth[i * static_cast<size_t>(all.gpus) + j];
      s.over_pci[i * n + j] = all.over_pci[i * static_cast<size_t>(all.gpus) + j];
    }
  s.nic.resize(n);
  s.package.resize(n);
  return s;
}

void all_small(const std::string& folder) {
  std::vector<std::pair<std::string, Slots>> machines = {{"hgx", hgx()}};
  const Links links;
  if (std::filesystem::exists(folder))
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.path().extension() != ".xml") continue;
      try {
        const Slots s = slots_of(map_node(load_untrusted_topology(entry.path().string())), links);
        if (s.gpus > 0) machines.emplace_back(entry.path().filename().string(), s);
      } catch (const std::exception&) {
        continue;  // one is there to be refused
      }
    }
  std::sort(machines.begin(), machines.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Tally tally;
  std::mt19937 random(5);
  for (const auto& [name, slots] : machines)
    for (const int nodes : {1, 2, 4}) {
      for (const int each : {2, 4, 8}) {
        if (each > slots.gpus || nodes * each > 8 || nodes * each < 4) continue;
        // Names that alternate between two leaves.
        Cluster cluster;
        cluster.switches =
            parse_topology("SwitchName=a Nodes=n[0,2]\nSwitchName=b Nodes=n[1,3]\nSwitchName=c Switches=a,b\n", "bench");
        cluster.hardware = {first_gpus(slots, each)};
        for (int n = 0; n < nodes; ++n) cluster.nodes.push_back({fmt::format("n{}", n), each, 0, 1, 1});
        const int ranks = nodes * each;
        for (int tp = 1; tp <= ranks; tp *= 2)
          for (int cp = 1; tp * cp <= ranks; cp *= 2)
            for (int pp = 1; tp * cp * pp <= ranks; pp *= 2)
              exhaustive(fmt::format("{} x {} of {}", nodes, each, name), cluster, job_of(tp, cp, ranks / (tp * cp * pp), pp),
                         tally);
      }
    }
  fmt::print(
      "{} machines, {} cases of 4 to 8 slots against all permutations: equal in {} ({:.1f} %), worst {:.4f} of the optimum "
      "(limits: 95 %, 1.01)\n",
      machines.size(), tally.cases, tally.equal, 100.0 * tally.equal / tally.cases, tally.worst);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what.empty() || what == "exhaustive") all_small("../shared/topologies");
  if (what.empty() || what == "large") {
    large(true);
    large(false);
  }
  if (what.empty() || what == "time") {
    fmt::print("\ntime to compute, one core (limits: 1,024 GPUs 20 ms, 16,384 GPUs 500 ms)\n");
    time_of(128, job_of(8, 1, 32, 4));
    time_of(128, job_of(4, 1, 32, 8));
    time_of(2048, job_of(8, 1, 256, 8));
    time_of(2048, job_of(8, 2, 64, 16));
    time_of(2048, job_of(4, 1, 512, 8));
  }
}
