// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <random>

#include "spank_plugin/placement/search.h"
#include "spank_plugin/placement/uplinks.h"

namespace mm::placement {
namespace {

constexpr unsigned seed = 20;
constexpr int attempts_of_node = 24, vain_of_node = 4, most_attempts = 30000;

bool better(const Cost& a, const Cost& b) {
  if (a.total < b.total * (1 - 1e-9)) return true;
  return a.total <= b.total * (1 + 1e-9) && a.spread < b.spread * (1 - 1e-9);
}

}  // namespace

void exchange_blocks(const Pricer& pricer, const Cost& start, const std::vector<std::vector<int>>& blocks,
                     std::vector<int>& node_of_block) {
  const int count = static_cast<int>(blocks.size());
  if (count < 2 || pricer.switches() < 2) return;
  Uplinks uplinks(pricer, start, blocks);
  uplinks.place(node_of_block);
  const std::vector<Node>& nodes = pricer.cluster().nodes;
  std::vector<int> block_at(nodes.size(), -1);
  std::vector<std::vector<int>> below(static_cast<size_t>(pricer.switches()));  // nodes
  for (int b = 0; b < count; ++b) {
    const int node = node_of_block[static_cast<size_t>(b)];
    block_at[static_cast<size_t>(node)] = b;
    for (int s = pricer.leaf(node); s >= 0; s = pricer.parent(s)) below[static_cast<size_t>(s)].push_back(node);
  }
  std::mt19937 random(seed);
  const auto any = [&](size_t n) { return static_cast<size_t>(random() % static_cast<unsigned>(n)); };
  double seconds = uplinks.smooth_seconds();
  const int attempts = std::min(most_attempts, attempts_of_node * count);
  int in_vain = 0;
  for (int i = 0; i < attempts && in_vain < vain_of_node * count; ++i, ++in_vain) {
    int a = static_cast<int>(any(static_cast<size_t>(count)));
    // Three times of four a block below a busiest link.
    if (const int s = i % 4 != 0 ? uplinks.busiest_switch(static_cast<int>(any(pricer.families().size()))) : -1; s >= 0) {
      const std::vector<int>& under = below[static_cast<size_t>(s)];
      a = block_at[static_cast<size_t>(under[any(under.size())])];
    }
    const int b = static_cast<int>(any(static_cast<size_t>(count)));
    const int x = uplinks.nodes()[static_cast<size_t>(a)], y = uplinks.nodes()[static_cast<size_t>(b)];
    if (pricer.leaf(x) == pricer.leaf(y) || blocks[static_cast<size_t>(a)].size() != blocks[static_cast<size_t>(b)].size() ||
        nodes[static_cast<size_t>(x)].hardware != nodes[static_cast<size_t>(y)].hardware)
      continue;
    uplinks.exchange(a, b);
    const double now = uplinks.smooth_seconds();
    if (now < seconds * (1 - 1e-9)) {
      in_vain = 0;
      seconds = now;
      std::swap(block_at[static_cast<size_t>(x)], block_at[static_cast<size_t>(y)]);
    } else {
      uplinks.undo(a, b);
    }
  }
  node_of_block = uplinks.nodes();
}

void exchange_ranks(Pricer& pricer, RankMap& map, Cost& cost, int most_rounds) {
  const Cluster& cluster = pricer.cluster();
  const size_t ranks = map.node.size();
  std::vector<std::pair<int, int>> free;
  std::vector<int> used(cluster.nodes.size(), 0);
  for (const int node : map.node) ++used[static_cast<size_t>(node)];
  for (size_t n = 0; n < cluster.nodes.size(); ++n)
    for (int g = 0; g < cluster.hardware[static_cast<size_t>(cluster.nodes[n].hardware)].gpus; ++g) {
      bool taken = false;
      for (size_t r = 0; r < ranks; ++r) taken = taken || (map.node[r] == static_cast<int>(n) && map.gpu[r] == g);
      if (!taken) free.emplace_back(static_cast<int>(n), g);
    }
  const auto keeps = [&] {
    const Cost now = pricer.price(map);
    if (!better(now, cost)) return false;
    cost = now;
    return true;
  };
  for (int round = 0; round < most_rounds; ++round) {
    bool improved = false;
    for (size_t a = 0; a < ranks; ++a) {
      for (size_t b = a + 1; b < ranks; ++b) {
        const auto exchange = [&] {
          std::swap(map.node[a], map.node[b]);
          std::swap(map.gpu[a], map.gpu[b]);
        };
        exchange();
        if (keeps())
          improved = true;
        else
          exchange();
      }
      for (auto& slot : free) {
        const auto move = [&] {
          --used[static_cast<size_t>(map.node[a])];
          std::swap(map.node[a], slot.first);
          std::swap(map.gpu[a], slot.second);
          ++used[static_cast<size_t>(map.node[a])];
        };
        if (slot.first != map.node[a] &&
            used[static_cast<size_t>(slot.first)] >= cluster.nodes[static_cast<size_t>(slot.first)].slots)
          continue;
        move();
        if (keeps())
          improved = true;
        else
          move();
      }
    }
    if (!improved) return;
  }
}

void GpuChooser::choose(RankMap& map) {
  std::vector<std::vector<int>> on(cluster_.nodes.size());
  for (size_t r = 0; r < map.node.size(); ++r) on[static_cast<size_t>(map.node[r])].push_back(static_cast<int>(r));
  map.gpu.assign(map.node.size(), 0);
  std::vector<int> all;
  for (size_t n = 0; n < on.size(); ++n) {
    if (on[n].empty()) continue;
    const int hardware = cluster_.nodes[n].hardware;
    const Slots& slots = cluster_.hardware[static_cast<size_t>(hardware)];
    NodeTraffic traffic = node_traffic(memberships_, on[n]);
    const auto [entry, is_new] = known_.try_emplace({hardware, std::move(traffic)});
    if (is_new) {
      all.resize(static_cast<size_t>(slots.gpus));
      for (int g = 0; g < slots.gpus; ++g) all[static_cast<size_t>(g)] = g;
      entry->second = choose_gpus(slots, cluster_.links, entry->first.second, all);
    }
    for (size_t i = 0; i < on[n].size(); ++i) map.gpu[static_cast<size_t>(on[n][i])] = entry->second[i];
  }
}

}  // namespace mm::placement
