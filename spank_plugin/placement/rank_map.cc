// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/placement/rank_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <unordered_map>

#include "common/error.h"
#include "spank_plugin/placement/search.h"
#include "spank_plugin/placement/uplinks.h"

namespace mm::placement {
namespace {

constexpr int most_boxes = 3, most_searched = 2;
constexpr size_t most_kept = 4, most_kept_small = 16;  // orders that are priced exactly
constexpr size_t most_visits_of_block = 400;
constexpr double hopeless = 1.5;  // a box so much slower inside nodes than the best is not tried
constexpr int small_job = 64, tiny_job = 16, random_starts = 60;
constexpr unsigned seed = 21;

struct Candidate {
  std::vector<std::vector<int>> blocks;
  std::vector<int> node_of_block;
  RankMap map;
  Cost cost;
};

bool cheaper(const Cost& a, const Cost& b) {
  const double x = a.total + a.compute, y = b.total + b.compute;
  return x < y * (1 - 1e-12) || (x <= y * (1 + 1e-12) && a.spread < b.spread);
}

bool even(const Cluster& cluster) {
  const Node& first = cluster.nodes.front();
  return std::all_of(cluster.nodes.begin(), cluster.nodes.end(),
                     [&](const Node& n) { return n.flops == first.flops && n.memory_bandwidth == first.memory_bandwidth; });
}

// Seconds of the slowest stage.
double compute_seconds(const Cluster& cluster, const Job& job, const RankMap& map) {
  const std::vector<Stage> stages = stages_of(cluster, job, map);
  double slowest = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    const bool pictures = s == 0 && job.encoder_ranks() == 0;
    const double text = stages[s].layers + (s + 1 == stages.size() ? job.head_layers : 0);
    slowest = std::max(slowest, text / stages[s].speed.text + (pictures ? job.image_layers / stages[s].speed.pictures : 0));
  }
  if (job.encoder_ranks() > 0) {
    double speed = 1e300;
    for (int r = job.mesh.world_size(); r < job.ranks(); ++r)
      speed = std::min(speed, cluster.nodes[static_cast<size_t>(map.node[static_cast<size_t>(r)])].flops);
    slowest = std::max(slowest, job.image_layers / speed);
  }
  return slowest * job.layer_seconds;
}

// A box, with its blocks over the nodes as they are walked; seconds: what the box alone decides, inside nodes and on NICs.
struct Boxed {
  Box box;
  Candidate plain;
  double seconds = 0;
};

struct Order {
  size_t box = 0;
  std::vector<int> node_of_block;
  double seconds = 0, pressure = 0;
};

class Search {
 public:
  Search(const Cluster& cluster, const Job& job)
      : cluster_(cluster),
        job_(job),
        pricer_(cluster, families_of(job)),
        chooser_(cluster, pricer_.families(), job.ranks()),
        walk_(walk_nodes(cluster)),
        even_(even(cluster)) {
    // Nodes of a kind in a row, those first that are better at pictures than at text: so stages are of one kind.
    const auto key = [&](int n) {
      const Node& node = cluster.nodes[static_cast<size_t>(n)];
      return std::pair(-node.flops / node.memory_bandwidth, -node.flops);
    };
    if (!even_) std::stable_sort(walk_.begin(), walk_.end(), [&](int a, int b) { return key(a) < key(b); });
  }

  Placement run() {
    Placement out;
    out.map = block_map(cluster_, job_.ranks());
    out.block = out.ours = price(out.map);
    out.is_block = true;
    // Of equals the order of the switch tree: it holds for programs whose traffic is another than the model's, too.
    Candidate natural = fill({0, 1, 2, 3});
    if (!cheaper(out.ours, natural.cost)) {
      out.is_block = natural.map.node == out.map.node && natural.map.gpu == out.map.gpu;
      out.map = std::move(natural.map);
      out.ours = natural.cost;
    }
    std::vector<Candidate> found = uniform() ? from_boxes() : from_orders();
    std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) { return cheaper(a.cost, b.cost); });
    if (found.size() > most_searched)
      found.resize(job_.ranks() <= tiny_job ? std::min<size_t>(found.size(), 8) : most_searched);
    for (Candidate& c : found) {
      std::vector<int> nodes = c.node_of_block;
      exchange_blocks(pricer_, c.cost, c.blocks, nodes);
      consider(finish(c.blocks, nodes, true), out);
      consider(std::move(c), out);
    }
    if (job_.ranks() <= small_job) small(found, out);
    return out;
  }

 private:
  Cost price(const RankMap& map) {
    Cost cost = pricer_.price(map);
    if (!even_) cost.compute = compute_seconds(cluster_, job_, map);
    return cost;
  }

  bool uniform() const {
    const int slots = cluster_.nodes.front().slots;
    return std::all_of(cluster_.nodes.begin(), cluster_.nodes.end(), [&](const Node& n) { return n.slots == slots; }) &&
           static_cast<int>(cluster_.nodes.size()) * slots == job_.ranks() && job_.encoder_ranks() % slots == 0;
  }

  // In large jobs GPUs are taken in order until the map is chosen: they differ little between maps, and cost time.
  Candidate finish(std::vector<std::vector<int>> blocks, std::vector<int> nodes, bool last = false) {
    Candidate c;
    c.blocks = std::move(blocks);
    c.node_of_block = std::move(nodes);
    c.map.node.assign(static_cast<size_t>(job_.ranks()), 0);
    for (size_t b = 0; b < c.blocks.size(); ++b)
      for (const int rank : c.blocks[b]) c.map.node[static_cast<size_t>(rank)] = c.node_of_block[b];
    if (last || job_.ranks() <= small_job) {
      chooser_.choose(c.map);
    } else {
      c.map.gpu.assign(c.map.node.size(), 0);
      for (const std::vector<int>& block : c.blocks)
        for (size_t i = 0; i < block.size(); ++i) c.map.gpu[static_cast<size_t>(block[i])] = static_cast<int>(i);
    }
    c.cost = price(c.map);
    return c;
  }

  void consider(Candidate c, Placement& best) {
    if (!cheaper(c.cost, best.ours)) return;
    best.map = std::move(c.map);
    best.ours = c.cost;
    best.is_block = false;
  }

  // The encoder's own ranks are blocks like the others, after them.
  void add_encoder(std::vector<std::vector<int>>& blocks, int slots) const {
    for (int r = job_.mesh.world_size(); r < job_.ranks(); r += slots) {
      std::vector<int> block(static_cast<size_t>(slots));
      std::iota(block.begin(), block.end(), r);
      blocks.push_back(std::move(block));
    }
  }

  std::vector<Candidate> from_boxes() {
    std::vector<Boxed> boxes;
    for (const Box& box : boxes_of(job_.mesh, cluster_.nodes.front().slots)) {
      std::vector<std::vector<int>> blocks = blocks_in_order(job_.mesh, box, {0, 1, 2, 3});
      add_encoder(blocks, cluster_.nodes.front().slots);
      Candidate c = finish(std::move(blocks), walk_);
      const double seconds = std::accumulate(c.cost.floor.begin(), c.cost.floor.end(), c.cost.compute);
      boxes.push_back({box, std::move(c), seconds});
    }
    if (boxes.empty()) return from_orders();
    std::stable_sort(boxes.begin(), boxes.end(), [](const Boxed& a, const Boxed& b) { return a.seconds < b.seconds; });
    if (job_.ranks() > small_job) {
      if (boxes.size() > most_boxes) boxes.resize(most_boxes);
      while (boxes.back().seconds > hopeless * boxes.front().seconds) boxes.pop_back();
    }
    std::vector<Order> best;
    for (size_t b = 0; b < boxes.size(); ++b) try_orders(boxes[b], b, best);
    std::vector<Candidate> out;
    for (Order& o : best) out.push_back(finish(boxes[o.box].plain.blocks, std::move(o.node_of_block)));
    return out;
  }

  // The nests of a box over the nodes as they are walked, and with the runs of each loop packed below switches.
  void try_orders(const Boxed& boxed, size_t number, std::vector<Order>& best) {
    const std::vector<std::vector<int>>& blocks = boxed.plain.blocks;
    const size_t kept = job_.ranks() <= small_job ? most_kept_small : most_kept;
    Uplinks uplinks(pricer_, boxed.plain.cost, blocks);
    size_t visits = 0;
    Order order;
    order.box = number;
    order.node_of_block.resize(blocks.size());
    const auto consider_order = [&](const std::vector<int>& sequence, const std::vector<int>& nodes) {
      for (size_t i = 0; i < blocks.size(); ++i)
        order.node_of_block[i < sequence.size() ? static_cast<size_t>(sequence[i]) : i] = nodes[i];
      if (even_) {
        uplinks.place(order.node_of_block);
        visits += uplinks.edges();
        order.seconds = uplinks.seconds();
        order.pressure = uplinks.smooth_seconds();
      } else {
        const Candidate c = finish(blocks, order.node_of_block);  // the stages' speed depends on the order
        order.seconds = c.cost.total + c.cost.compute;
        order.pressure = c.cost.spread;
      }
      const auto at = std::upper_bound(best.begin(), best.end(), order, [](const Order& a, const Order& b) {
        return a.seconds < b.seconds * (1 - 1e-9) || (a.seconds <= b.seconds * (1 + 1e-9) && a.pressure < b.pressure);
      });
      if (static_cast<size_t>(at - best.begin()) >= kept) return;
      best.insert(at, order);
      if (best.size() > kept) best.pop_back();
    };
    const std::vector<Nest> nests = nests_of(job_.mesh, boxed.box);
    for (const Nest& nest : nests) {
      if (visits > most_visits_of_block * blocks.size() || (!even_ && nest.size() > nests.front().size())) break;
      const std::vector<int> sequence = blocks_of_nest(job_.mesh, boxed.box, nest);
      consider_order(sequence, walk_);
      int unit = 1;
      for (const Loop& loop : nest) {
        unit *= loop.count;
        if (unit >= static_cast<int>(blocks.size()) || pricer_.switches() < 2) break;
        consider_order(sequence, packed(unit));
      }
    }
  }

  const std::vector<int>& packed(int unit) {
    const auto [at, is_new] = packed_.try_emplace(unit);
    if (is_new) at->second = packed_nodes(pricer_, walk_, unit);
    return at->second;
  }

  // Ranks in an order of the axes fill one node of the walk after the other.
  Candidate fill(const std::array<int, 4>& axes) {
    std::vector<int> ranks;
    for (const std::vector<int>& one : blocks_in_order(job_.mesh, Box{}, axes)) ranks.push_back(one.front());
    for (int r = job_.mesh.world_size(); r < job_.ranks(); ++r) ranks.push_back(r);
    std::vector<std::vector<int>> blocks;
    std::vector<int> nodes;
    size_t next = 0;
    for (const int node : walk_) {
      const size_t take = std::min(ranks.size() - next, static_cast<size_t>(cluster_.nodes[static_cast<size_t>(node)].slots));
      if (take == 0) continue;
      blocks.emplace_back(ranks.begin() + static_cast<std::ptrdiff_t>(next),
                          ranks.begin() + static_cast<std::ptrdiff_t>(next + take));
      std::sort(blocks.back().begin(), blocks.back().end());
      nodes.push_back(node);
      next += take;
    }
    return finish(std::move(blocks), std::move(nodes));
  }

  std::vector<Candidate> from_orders() {
    std::vector<Candidate> out;
    for (const std::array<int, 4>& axes : axis_orders(job_.mesh, Box{})) out.push_back(fill(axes));
    return out;
  }

  // Ranks change places one by one; in tiny jobs from many starts.
  void small(const std::vector<Candidate>& starts, Placement& best) {
    const auto search = [&](RankMap map) {
      Cost cost = pricer_.price(map);
      exchange_ranks(pricer_, map, cost, 50);
      cost = price(map);
      if (!cheaper(cost, best.ours)) return;
      best.map = std::move(map);
      best.ours = cost;
      best.is_block = false;
    };
    search(best.map);
    if (job_.ranks() > tiny_job) return;
    for (const Candidate& c : starts)
      if (!c.map.node.empty()) search(c.map);
    RankMap any = block_map(cluster_, job_.ranks());
    std::mt19937 random(seed);
    for (int k = 0; k < (job_.ranks() <= tiny_job / 2 ? random_starts : random_starts / 5); ++k) {
      for (size_t i = any.node.size(); i-- > 1;) {
        const size_t j = random() % (i + 1);
        std::swap(any.node[i], any.node[j]);
        std::swap(any.gpu[i], any.gpu[j]);
      }
      search(any);
    }
  }

  const Cluster& cluster_;
  const Job& job_;
  Pricer pricer_;
  GpuChooser chooser_;
  std::vector<int> walk_;
  std::map<int, std::vector<int>> packed_;  // by unit
  bool even_;
};

void check_slots(const Cluster& cluster, int ranks) {
  int64_t slots = 0;
  for (const Node& n : cluster.nodes) slots += n.slots;
  if (cluster.nodes.empty() || slots < ranks)
    throw usage_error(fmt::format("placement: {} ranks, but {} nodes have {} slots", ranks, cluster.nodes.size(), slots));
  for (const Node& n : cluster.nodes)
    if (const int gpus = cluster.hardware[static_cast<size_t>(n.hardware)].gpus; n.slots > gpus)
      throw usage_error(fmt::format("placement: {}: {} ranks, but {} GPUs", n.name, n.slots, gpus));
}

void number_local_ranks(const Cluster& cluster, Placement& p) {
  std::vector<int> next(cluster.nodes.size(), 0);
  for (const int node : p.map.node) p.local_rank.push_back(next[static_cast<size_t>(node)]++);
}

}  // namespace

std::vector<Stage> stages_of(const Cluster& cluster, const Job& job, const RankMap& map) {
  const Layout& m = job.mesh;
  std::vector<Stage> out(static_cast<size_t>(m.pp), {0, {1e300, 1e300}});
  for (int r = 0; r < m.world_size(); ++r) {
    const Node& node = cluster.nodes[static_cast<size_t>(map.node[static_cast<size_t>(r)])];
    plan::StageSpeed& s = out[static_cast<size_t>(m.coordinates(r).pp)].speed;
    s.text = std::min(s.text, node.memory_bandwidth);
    s.pictures = std::min(s.pictures, node.flops);
  }
  std::vector<int> layers = job.stage_layers;
  if (layers.empty()) {
    std::vector<plan::StageSpeed> speeds;
    for (const Stage& s : out) speeds.push_back(s.speed);
    layers = plan::sized_stages(job.layers, {job.image_layers, job.head_layers}, speeds, job.encoder_ranks() == 0, job.least_layers);
  }
  plan::Parallelism even;
  even.mesh = m;
  even.chunks = job.least_layers;
  even.layers = layers;
  for (size_t s = 0; s < out.size(); ++s) out[s].layers = static_cast<int>(plan::layers_of_stage(job.layers, even, static_cast<int>(s)));
  return out;
}

RankMap block_map(const Cluster& cluster, int ranks) {
  RankMap map;
  for (size_t n = 0; n < cluster.nodes.size(); ++n)
    for (int k = 0; k < cluster.nodes[n].slots && static_cast<int>(map.node.size()) < ranks; ++k) {
      map.node.push_back(static_cast<int>(n));
      map.gpu.push_back(k);
    }
  return map;
}

Placement place(const Cluster& cluster, const Job& job) {
  check_slots(cluster, job.ranks());
  Placement out = Search(cluster, job).run();
  number_local_ranks(cluster, out);
  return out;
}

Placement place_again(const Cluster& cluster, const Job& job, const std::vector<std::string>& before) {
  check_slots(cluster, job.ranks());
  const size_t ranks = static_cast<size_t>(job.ranks());
  if (before.size() != ranks)
    throw usage_error(fmt::format("placement: the map before has {} ranks, the job has {}", before.size(), ranks));
  std::unordered_map<std::string, int> index;
  for (size_t n = 0; n < cluster.nodes.size(); ++n) index.emplace(cluster.nodes[n].name, static_cast<int>(n));
  std::vector<int> free;
  for (const Node& n : cluster.nodes) free.push_back(n.slots);
  RankMap map;
  map.node.assign(ranks, -1);
  std::vector<size_t> homeless;
  for (size_t r = 0; r < ranks; ++r) {
    const auto found = index.find(before[r]);
    if (found != index.end() && free[static_cast<size_t>(found->second)] > 0) {
      map.node[r] = found->second;
      --free[static_cast<size_t>(found->second)];
    } else {
      homeless.push_back(r);
    }
  }
  // Ranks that shared a lost node stay together, each such group on the free nodes nearest in the tree to the most others.
  Pricer pricer(cluster, families_of(job));
  GpuChooser chooser(cluster, pricer.families(), job.ranks());
  std::stable_sort(homeless.begin(), homeless.end(), [&](size_t a, size_t b) { return before[a] < before[b]; });
  for (size_t i = 0; i < homeless.size();) {
    size_t end = i;
    while (end < homeless.size() && before[homeless[end]] == before[homeless[i]]) ++end;
    for (size_t k = i; k < end;) {
      int best = -1;
      Cost least;
      for (size_t n = 0; n < free.size(); ++n) {
        if (free[n] == 0) continue;
        const size_t take = std::min(end - k, static_cast<size_t>(free[n]));
        RankMap trial = map;
        for (size_t j = 0; j < ranks; ++j)
          if (trial.node[j] < 0) trial.node[j] = static_cast<int>(n);
        trial.gpu.assign(ranks, 0);
        const Cost cost = pricer.price(trial);
        if (best < 0 || take > std::min(end - k, static_cast<size_t>(free[static_cast<size_t>(best)])) ||
            (take == std::min(end - k, static_cast<size_t>(free[static_cast<size_t>(best)])) && cheaper(cost, least))) {
          best = static_cast<int>(n);
          least = cost;
        }
      }
      const size_t take = std::min(end - k, static_cast<size_t>(free[static_cast<size_t>(best)]));
      for (size_t j = k; j < k + take; ++j) map.node[homeless[j]] = best;
      free[static_cast<size_t>(best)] -= static_cast<int>(take);
      k += take;
    }
    i = end;
  }
  chooser.choose(map);
  Placement out;
  out.ours = pricer.price(map);
  out.block = pricer.price(block_map(cluster, job.ranks()));
  out.map = std::move(map);
  number_local_ranks(cluster, out);
  return out;
}

}  // namespace mm::placement
