// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <random>
#include <tuple>

#include "spank_plugin/placement/search.h"

namespace mm::placement {
namespace {

constexpr unsigned seed = 20;
constexpr int attempts_of_node = 40, vain_of_node = 10, most_attempts = 100000;

bool better(const Cost& a, const Cost& b) {
  if (a.total < b.total * (1 - 1e-9)) return true;
  return a.total <= b.total * (1 + 1e-9) && a.spread < b.spread * (1 - 1e-9);
}

// Bytes that blocks send each other, by family, and how busy the uplinks are that follows from where they are. A link is a
// family's use of a switch's uplinks in one direction; it has its seconds. Of every family the busiest link is known.
class Uplinks {
 public:
  Uplinks(const Pricer& pricer, const Cost& start, const std::vector<std::vector<int>>& blocks,
          const std::vector<int>& node_of_block)
      : pricer_(pricer),
        families_(static_cast<int>(pricer.families().size())),
        width_(2 * pricer.switches()),
        node_(node_of_block) {
    find_edges(blocks);
    for (int s = 0; s < pricer.switches(); ++s) slowness_.push_back(pricer.uplink(s) > 0 ? 1 / pricer.uplink(s) : 0);
    links_.assign(static_cast<size_t>(families_ * width_), 0);
    for (int f = 0; f < families_; ++f)
      floor_.push_back(start.floor[static_cast<size_t>(pricer.families()[static_cast<size_t>(f)].kind)]);
    for (const Edge& e : edges_) add(e, 1);
    touched_.clear();
    busiest_.assign(static_cast<size_t>(families_), 0);
    for (int f = 0; f < families_; ++f) find_busiest(f);
  }

  double seconds() const {
    double total = 0;
    for (int f = 0; f < families_; ++f) total += std::max(floor_[static_cast<size_t>(f)], busiest(f));
    return total;
  }
  double spread() const { return spread_; }
  const std::vector<int>& nodes() const { return node_; }
  // The switch of the busiest link of a family that is busier than what no switch is to blame for; -1: none.
  int busiest_switch(int family) const {
    return busiest(family) > floor_[static_cast<size_t>(family)] ? busiest_[static_cast<size_t>(family)] % width_ / 2 : -1;
  }

  // Places of two blocks. The links that this changes are compared with the busiest of each family, which is looked for anew
  // only where it got less busy.
  void exchange(int a, int b) {
    before_ = busiest_;
    seconds_before_.clear();
    for (int f = 0; f < families_; ++f) seconds_before_.push_back(busiest(f));
    spread_before_ = spread_;
    move(a, b);
    for (const int link : touched_)
      if (const size_t f = static_cast<size_t>(link / width_); links_[static_cast<size_t>(link)] > busiest(static_cast<int>(f)))
        busiest_[f] = link;
    for (int f = 0; f < families_; ++f)
      if (busiest(f) < seconds_before_[static_cast<size_t>(f)]) find_busiest(f);
  }
  // The last exchange, which was of the same two.
  void undo(int a, int b) {
    move(a, b);
    busiest_ = before_;
    spread_ = spread_before_;
  }

 private:
  struct Edge {
    int family, from, to;
    double bytes;
    std::tuple<int, int, int> key() const { return {family, from, to}; }
  };
  void move(int a, int b) {
    touched_.clear();
    change(a, b, -1);
    std::swap(node_[static_cast<size_t>(a)], node_[static_cast<size_t>(b)]);
    change(a, b, 1);
  }
  double busiest(int f) const { return links_[static_cast<size_t>(busiest_[static_cast<size_t>(f)])]; }
  void find_busiest(int f) {
    const auto first = links_.begin() + f * width_;
    busiest_[static_cast<size_t>(f)] = static_cast<int>(std::max_element(first, first + width_) - links_.begin());
  }

  void find_edges(const std::vector<std::vector<int>>& blocks) {
    std::vector<int> block_of;
    for (size_t b = 0; b < blocks.size(); ++b)
      for (const int rank : blocks[b]) {
        if (static_cast<size_t>(rank) >= block_of.size()) block_of.resize(static_cast<size_t>(rank) + 1, -1);
        block_of[static_cast<size_t>(rank)] = static_cast<int>(b);
      }
    std::vector<Edge> all;
    std::vector<int> seen(blocks.size(), -1), visits;
    int mark = 0;
    for (int f = 0; f < families_; ++f) {
      const Family& family = pricer_.families()[static_cast<size_t>(f)];
      for (int g = 0; g < family.size(); ++g, ++mark) {
        const double bytes = family.amounts[static_cast<size_t>(g)].bytes;
        visits.clear();
        for (int i = family.begin[static_cast<size_t>(g)]; i < family.begin[static_cast<size_t>(g) + 1]; ++i) {
          const int b = block_of[static_cast<size_t>(family.members[static_cast<size_t>(i)])];
          if (family.ring ? seen[static_cast<size_t>(b)] != mark : visits.empty() || visits.back() != b) visits.push_back(b);
          seen[static_cast<size_t>(b)] = mark;
        }
        const size_t n = visits.size();
        for (size_t k = 0; n > 1 && k < (family.ring ? n : n - 1); ++k) {
          all.push_back({f, visits[k], visits[(k + 1) % n], bytes});
          if (!family.ring) all.push_back({f, visits[k + 1], visits[k], bytes});
        }
      }
    }
    std::sort(all.begin(), all.end(), [](const Edge& a, const Edge& b) { return a.key() < b.key(); });
    for (const Edge& e : all) {
      if (!edges_.empty() && edges_.back().key() == e.key())
        edges_.back().bytes += e.bytes;
      else
        edges_.push_back(e);
    }
    of_block_.resize(blocks.size());
    for (size_t i = 0; i < edges_.size(); ++i) {
      of_block_[static_cast<size_t>(edges_[i].from)].push_back(static_cast<int>(i));
      of_block_[static_cast<size_t>(edges_[i].to)].push_back(static_cast<int>(i));
    }
  }

  void add(const Edge& e, int sign) {
    int x = pricer_.leaf(node_[static_cast<size_t>(e.from)]), y = pricer_.leaf(node_[static_cast<size_t>(e.to)]);
    const auto use = [&](int s, int direction) {
      const int link = e.family * width_ + 2 * s + direction;
      const double seconds = sign * e.bytes * slowness_[static_cast<size_t>(s)];
      links_[static_cast<size_t>(link)] += seconds;
      spread_ += seconds;
      touched_.push_back(link);
    };
    while (x != y) {
      const bool climb = y < 0 || (x >= 0 && pricer_.depth(x) >= pricer_.depth(y));
      const bool both = x >= 0 && y >= 0 && pricer_.depth(x) == pricer_.depth(y);
      if (climb) {
        use(x, 0);
        x = pricer_.parent(x);
      }
      if (!climb || both) {
        use(y, 1);
        y = pricer_.parent(y);
      }
    }
  }
  void change(int a, int b, int sign) {
    for (const int i : of_block_[static_cast<size_t>(a)]) add(edges_[static_cast<size_t>(i)], sign);
    for (const int i : of_block_[static_cast<size_t>(b)]) {
      const Edge& e = edges_[static_cast<size_t>(i)];
      if (e.from != a && e.to != a) add(e, sign);
    }
  }

  const Pricer& pricer_;
  int families_, width_;  // width: links of a family
  std::vector<int> node_;
  std::vector<double> floor_, slowness_, links_;
  std::vector<int> busiest_;  // of each family, a link
  std::vector<Edge> edges_;
  std::vector<std::vector<int>> of_block_;
  std::vector<int> touched_;  // links
  std::vector<int> before_;
  std::vector<double> seconds_before_;
  double spread_ = 0, spread_before_ = 0;
};

}  // namespace

void exchange_blocks(const Pricer& pricer, const Cost& start, const std::vector<std::vector<int>>& blocks,
                     std::vector<int>& node_of_block) {
  const int count = static_cast<int>(blocks.size());
  if (count < 2 || pricer.switches() < 2) return;
  Uplinks uplinks(pricer, start, blocks, node_of_block);
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
  double seconds = uplinks.seconds(), spread = uplinks.spread();
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
    const double now = uplinks.seconds(), now_spread = uplinks.spread();
    if (now < seconds * (1 - 1e-9) || (now <= seconds * (1 + 1e-9) && now_spread < spread * (1 - 1e-9))) {
      if (now < seconds * (1 - 1e-9)) in_vain = 0;
      seconds = now;
      spread = now_spread;
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
