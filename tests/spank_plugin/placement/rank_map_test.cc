// SPDX-License-Identifier: Apache-2.0
// Rank maps: what holds for every one of them, and what is best in cases that a person can check.
#include "spank_plugin/placement/rank_map.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <set>

#include "common/error.h"
#include "spank_plugin/placement/draw.h"
#include "spank_plugin/placement/search.h"
#include "spank_plugin/placement/uplinks.h"

namespace mm::placement {
namespace {

// GPUs in two halves that are near; a NIC for each of them.
Slots two_halves(int gpus) {
  Slots s = unknown_slots(gpus, {});
  s.nics = {20, 20};
  for (int i = 0; i < gpus; ++i) {
    s.nic[static_cast<size_t>(i)] = s.package[static_cast<size_t>(i)] = i * 2 / gpus;
    for (int j = 0; j < gpus; ++j) s.bandwidth[static_cast<size_t>(i * gpus + j)] = i * 2 / gpus == j * 2 / gpus ? 100 : 10;
  }
  return s;
}

Cluster cluster_of(int nodes, int slots, const std::string& topology) {
  Cluster c;
  c.switches = parse_topology(topology, "test");
  c.hardware = {two_halves(slots)};
  for (int n = 0; n < nodes; ++n) c.nodes.push_back({fmt::format("n{}", n), slots, 0, 1, 1});
  return c;
}

Job job_of(int tp, int cp, int dp, int pp) {
  Job job;
  job.mesh = {tp, cp, dp, pp};
  set_nominal_amounts(job);
  return job;
}

// Every rank has a slot of its own, and none is worse off than in block order.
void expect_valid(const Cluster& c, const Job& job, const Placement& p) {
  ASSERT_EQ(p.map.node.size(), static_cast<size_t>(job.ranks()));
  std::set<std::pair<int, int>> taken;
  std::vector<int> count(c.nodes.size(), 0);
  for (size_t r = 0; r < p.map.node.size(); ++r) {
    const int node = p.map.node[r], gpu = p.map.gpu[r];
    ASSERT_TRUE(node >= 0 && static_cast<size_t>(node) < c.nodes.size());
    ASSERT_TRUE(gpu >= 0 && gpu < c.hardware[static_cast<size_t>(c.nodes[static_cast<size_t>(node)].hardware)].gpus);
    EXPECT_TRUE(taken.insert({node, gpu}).second) << "rank " << r;
    EXPECT_EQ(p.local_rank[r], count[static_cast<size_t>(node)]++);
  }
  for (size_t n = 0; n < count.size(); ++n) EXPECT_LE(count[n], c.nodes[n].slots);
  EXPECT_LE(p.ours.total + p.ours.compute, (p.block.total + p.block.compute) * (1 + 1e-9));
  EXPECT_EQ(Pricer(c, families_of(job)).price(p.map).total, p.ours.total);
}

TEST(RankMap, IsAPermutationAndNeverWorseThanBlockOrder) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    const auto pick = [&](std::initializer_list<int> from) { return *(from.begin() + random() % from.size()); };
    Job job = job_of(pick({1, 2, 4, 3}), pick({1, 1, 2}), pick({1, 2, 3, 4}), pick({1, 2, 4}));
    if (round % 5 == 0) {
      job.encoder_tp = 1;
      job.encoder_dp = pick({1, 2});
      set_nominal_amounts(job);
    }
    const int slots = pick({2, 4, 8});
    int nodes = (job.ranks() + slots - 1) / slots + static_cast<int>(random() % 2);
    std::string topology;
    for (int l = 0; l < 3; ++l) {
      topology += fmt::format("SwitchName=l{} Nodes=x", l);
      for (int n = l; n < nodes; n += 3) topology += fmt::format(",n{}", n);
      topology += '\n';
    }
    Cluster c = cluster_of(nodes, slots, topology + "SwitchName=top Switches=l[0-2]\n");
    if (round % 3 == 0) c.links.rails = true;
    if (round % 4 == 0) c.nodes.back().flops = c.nodes.back().memory_bandwidth = 0.5;
    if (round % 7 == 0 && nodes > 1)
      c.nodes.push_back(c.nodes.back()), c.nodes.back().name = "uneven", c.nodes.back().slots = 1;
    const Placement p = place(c, job);
    expect_valid(c, job, p);
    const Placement again = place(c, job);
    EXPECT_EQ(p.map.node, again.map.node) << "not the same twice";
    EXPECT_EQ(p.map.gpu, again.map.gpu);
  }
}

TEST(RankMap, GroupsThatTalkMostAreNearest) {
  // Two leaves whose nodes' names alternate; tp fills a node, so a data group of two nodes should share a leaf.
  Cluster c = cluster_of(4, 4, "SwitchName=a Nodes=n[0,2]\nSwitchName=b Nodes=n[1,3]\nSwitchName=s Switches=a,b\n");
  c.hardware = {unknown_slots(4, c.links)};
  const Job job = job_of(4, 1, 2, 2);
  const Placement p = place(c, job);
  for (int pp = 0; pp < 2; ++pp)
    EXPECT_EQ(
        c.switches.leaf(c.nodes[static_cast<size_t>(p.map.node[static_cast<size_t>(job.mesh.rank({0, 0, 0, pp}))])].name),
        c.switches.leaf(c.nodes[static_cast<size_t>(p.map.node[static_cast<size_t>(job.mesh.rank({0, 0, 1, pp}))])].name));
  for (int r = 0; r < job.ranks(); ++r)
    EXPECT_EQ(p.map.node[static_cast<size_t>(r)], p.map.node[static_cast<size_t>(r / 4 * 4)]) << "a tensor group is torn";
  EXPECT_LT(p.ours.seconds[static_cast<size_t>(Kind::data)], 0.8 * p.block.seconds[static_cast<size_t>(Kind::data)]);
}

TEST(RankMap, TensorGroupsStayInTheirHalfOfANode) {
  const Cluster c = cluster_of(1, 8, "");
  const Job job = job_of(4, 1, 1, 2);
  const Placement p = place(c, job);
  for (int r = 0; r < 8; ++r) EXPECT_EQ(p.map.gpu[static_cast<size_t>(r)] / 4, p.map.gpu[static_cast<size_t>(r / 4 * 4)] / 4);
}

TEST(RankMap, WhatIsLeftKeepsItsPlace) {
  std::mt19937 random(4);
  for (int round = 0; round < 20; ++round) {
    const Cluster before =
        cluster_of(8, 4, "SwitchName=a Nodes=n[0,2,4,6]\nSwitchName=b Nodes=n[1,3,5,7,8,9]\nSwitchName=s Switches=a,b\n");
    const Job job = job_of(4, 1, 4, 2);
    const Placement p = place(before, job);
    std::vector<std::string> names;
    for (const int n : p.map.node) names.push_back(before.nodes[static_cast<size_t>(n)].name);
    Cluster after = before;
    const std::string lost = fmt::format("n{}", random() % 8);
    std::erase_if(after.nodes, [&](const Node& n) { return n.name == lost; });
    after.nodes.push_back({"n8", 4, 0, 1, 1});
    after.nodes.push_back({"n9", 4, 0, 1, 1});
    const Placement q = place_again(after, job, names);
    std::set<std::string> taken;
    for (size_t r = 0; r < names.size(); ++r) {
      const std::string& now = after.nodes[static_cast<size_t>(q.map.node[r])].name;
      if (names[r] == lost)
        taken.insert(now);
      else
        EXPECT_EQ(now, names[r]) << "rank " << r;
    }
    EXPECT_EQ(taken.size(), 1U) << "ranks of one node are torn apart";
  }
  const Cluster small = cluster_of(1, 4, "");
  EXPECT_THROW(place_again(small, job_of(4, 1, 2, 1), std::vector<std::string>(8, "n0")), Error);
}

TEST(RankMap, SlowNodesMakeAStageOfTheirOwn) {
  Cluster c = cluster_of(4, 2, "");
  c.nodes[1].flops = c.nodes[1].memory_bandwidth = 0.5;
  c.nodes[2].flops = 2;  // good at pictures
  Job job = job_of(1, 1, 2, 4);
  job.layers = 28;
  job.image_layers = 6;
  const Placement p = place(c, job);
  const std::vector<Stage> stages = stages_of(c, job, p.map);
  EXPECT_EQ(p.map.node[0], 2) << "stage 0 has the pictures";
  EXPECT_EQ(p.map.node[1], 2);
  int total = 0, slow = 0;
  for (const Stage& s : stages) {
    total += s.layers;
    if (s.speed.text < 1) slow = s.layers;
  }
  EXPECT_EQ(total, 28);
  EXPECT_EQ(std::count_if(stages.begin(), stages.end(), [](const Stage& s) { return s.speed.text < 1; }), 1);
  EXPECT_LT(slow, 6);
  EXPECT_LT(p.ours.compute, 0.75 * 8 * job.layer_seconds / 0.5);
}

// Whatever pairs and rings the bridge between encoder and first stages is made of: its bytes are those that its ranks send.
TEST(RankMap, EncoderTrafficIsWhatItsRanksSend) {
  for (const auto& [tp, dp, encoder_tp, encoder_dp] : {std::array{1, 4, 1, 2}, std::array{2, 2, 2, 3}, std::array{8, 256, 4, 32}}) {
    Job job;
    job.mesh = {tp, 1, dp, 3};
    job.encoder_tp = encoder_tp;
    job.encoder_dp = encoder_dp;
    constexpr double makers_send = 7e9, takers_send = 3e8;
    job.amounts[static_cast<size_t>(Kind::encoder)] = {{takers_send, 8}, {}, {}, {makers_send, 8.0 * dp}};
    double bytes = 0;
    std::set<int> makers;
    for (const Family& f : families_of(job)) {
      ASSERT_EQ(f.kind, Kind::encoder);
      for (int g = 0; g < f.size(); ++g) {
        const int begin = f.begin[static_cast<size_t>(g)], size = f.begin[static_cast<size_t>(g) + 1] - begin;
        bytes += f.amounts[static_cast<size_t>(g)].bytes * (f.ring ? size : 2);
        makers.insert(f.members[static_cast<size_t>(begin)]);
        EXPECT_EQ(f.amounts[static_cast<size_t>(g)].calls, f.ring ? 8.0 * dp : 8.0);
      }
    }
    const double all = makers_send * job.encoder_ranks() + takers_send * tp * dp;
    EXPECT_NEAR(bytes, all, 1e-9 * all);
    EXPECT_EQ(makers.size(), static_cast<size_t>(job.encoder_ranks()));
  }
  Job colocated;
  colocated.mesh = {2, 2, 3, 2};
  colocated.amounts[static_cast<size_t>(Kind::encoder)] = {{1e6, 1}, {}};
  const std::vector<Family> families = families_of(colocated);
  ASSERT_EQ(families.size(), 1U);
  EXPECT_EQ(families[0].size(), 3);
  EXPECT_EQ(families[0].members.size(), 12U);
}

TEST(RankMap, StagesAreWhatTheJobSays) {
  Cluster c = cluster_of(4, 2, "");
  Job job = job_of(1, 1, 4, 2);
  job.layers = 10;
  const RankMap block = block_map(c, 8);
  const auto layers = [&] {
    std::vector<int> out;
    for (const Stage& s : stages_of(c, job, block)) out.push_back(s.layers);
    return out;
  };
  job.image_layers = 3;
  EXPECT_EQ(layers(), (std::vector<int>{5, 5})) << "nodes are alike";
  c.nodes[3].flops = c.nodes[3].memory_bandwidth = 0.5;
  job.image_layers = 0;
  EXPECT_EQ(layers(), (std::vector<int>{7, 3}));
  job.stage_layers = {4, 6};
  EXPECT_EQ(layers(), (std::vector<int>{4, 6}));
}

TEST(RankMap, MistakesNameTheNumbers) {
  const auto why = [](const Cluster& c, const Job& job) -> std::string {
    try {
      place(c, job);
      return "";
    } catch (const Error& e) {
      return e.what();
    }
  };
  EXPECT_EQ(why(cluster_of(2, 4, ""), job_of(4, 1, 4, 1)), "placement: 16 ranks, but 2 nodes have 8 slots");
  Cluster c = cluster_of(1, 4, "");
  c.nodes[0].slots = 6;
  EXPECT_EQ(why(c, job_of(4, 1, 1, 1)), "placement: n0: 6 ranks, but 4 GPUs");
}

// Exhaustive search on a few cases; bench-placement tries all.
TEST(RankMap, EqualsTheBestOfAllPermutationsInSmallCases) {
  const Cluster c = cluster_of(3, 2, "SwitchName=a Nodes=n[0,2]\nSwitchName=b Nodes=n1\nSwitchName=s Switches=a,b\n");
  for (const Job& job : {job_of(2, 1, 3, 1), job_of(1, 1, 3, 2), job_of(3, 1, 1, 2), job_of(1, 3, 2, 1), job_of(1, 1, 1, 6)}) {
    Pricer pricer(c, families_of(job));
    std::vector<int> slots(6);
    std::iota(slots.begin(), slots.end(), 0);
    double least = 1e300;
    RankMap map;
    map.node.resize(6);
    map.gpu.resize(6);
    do {
      for (size_t r = 0; r < 6; ++r) map.node[r] = slots[r] / 2, map.gpu[r] = slots[r] % 2;
      least = std::min(least, pricer.price(map).total);
    } while (std::next_permutation(slots.begin(), slots.end()));
    EXPECT_NEAR(place(c, job).ours.total, least, 1e-12);
  }
}

TEST(Search, EveryNestVisitsEveryBlockOnce) {
  for (const auto& [mesh, box] :
       {std::pair(Layout{4, 1, 32, 8}, Box{{4, 1, 2, 1}}), std::pair(Layout{8, 2, 16, 4}, Box{{8, 1, 1, 1}}),
        std::pair(Layout{1, 3, 5, 1}, Box{}), std::pair(Layout{2, 1, 1, 1}, Box{{2, 1, 1, 1}})}) {
    const size_t count = blocks_in_order(mesh, box, {0, 1, 2, 3}).size();
    std::set<std::vector<int>> orders;
    for (const Nest& nest : nests_of(mesh, box)) {
      std::vector<int> order = blocks_of_nest(mesh, box, nest);
      EXPECT_TRUE(orders.insert(order).second) << "the same order twice";
      std::sort(order.begin(), order.end());
      ASSERT_EQ(order.size(), count);
      for (size_t i = 0; i < count; ++i) EXPECT_EQ(order[i], static_cast<int>(i));
    }
    EXPECT_GE(orders.size(), 1U);
  }
}

// What exchanges leave behind is what placing anew gives, and the cost agrees with it.
TEST(Search, UplinksAgreeWithTheCost) {
  const Cluster c = cluster_of(8, 4, "SwitchName=a Nodes=n[0,2,4]\nSwitchName=b Nodes=n[1,3,5-7]\nSwitchName=s Switches=a,b\n");
  const Job job = job_of(2, 1, 4, 4);
  Pricer pricer(c, families_of(job));
  const std::vector<std::vector<int>> blocks = blocks_in_order(job.mesh, {{2, 1, 2, 1}}, {0, 1, 2, 3});
  RankMap map;
  map.node.resize(32);
  map.gpu.resize(32);
  std::vector<int> nodes = {0, 1, 2, 3, 4, 5, 6, 7};
  const auto cost = [&] {
    for (size_t b = 0; b < blocks.size(); ++b)
      for (size_t i = 0; i < blocks[b].size(); ++i) {
        map.node[static_cast<size_t>(blocks[b][i])] = nodes[b];
        map.gpu[static_cast<size_t>(blocks[b][i])] = static_cast<int>(i);
      }
    return pricer.price(map);
  };
  Uplinks kept(pricer, cost(), blocks), fresh(pricer, cost(), blocks);
  kept.place(nodes);
  std::mt19937 random(8);
  for (int round = 0; round < 200; ++round) {
    const int a = static_cast<int>(random() % 8), b = static_cast<int>(random() % 8);
    if (a == b) continue;
    kept.exchange(a, b);
    if (round % 3 == 0)
      kept.undo(a, b);
    else
      std::swap(nodes[static_cast<size_t>(a)], nodes[static_cast<size_t>(b)]);
    fresh.place(nodes);
    EXPECT_EQ(kept.nodes(), nodes);
    EXPECT_NEAR(kept.seconds(), fresh.seconds(), 1e-12);
    // The rest of the cost is latency: of a call, at most 16 us a hop.
    const double latency = cost().total - fresh.seconds();
    double calls = 0;
    for (const Family& f : pricer.families()) calls += f.amounts.front().calls * 2;
    EXPECT_GE(latency, 0);
    EXPECT_LE(latency, calls * 16e-6);
  }
}

TEST(Traffic, EveryRankIsInOneGroupOfAKind) {
  for (const Layout& mesh : {Layout{2, 3, 2, 4}, Layout{4, 1, 2, 2}, Layout{1, 1, 8, 1}}) {
    Job job;
    job.mesh = mesh;
    set_nominal_amounts(job);
    for (const Family& f : families_of(job)) {
      std::vector<int> seen(static_cast<size_t>(job.ranks()), 0);
      for (const int r : f.members) ++seen[static_cast<size_t>(r)];
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), job.ranks()) << name_of(f.kind);
      ASSERT_EQ(f.begin.size(), f.amounts.size() + 1);
    }
  }
}

TEST(Draw, ShowsEveryRankAndNamesNothingUnescaped) {
  Cluster c = cluster_of(2, 4, "SwitchName=a<b Nodes=n[0-1]\n");
  const Job job = job_of(2, 1, 2, 2);
  const std::string svg = draw(c, job, place(c, job));
  EXPECT_NE(svg.find("a&lt;b"), std::string::npos);
  for (int r = 0; r < 8; ++r) EXPECT_NE(svg.find(fmt::format(">{}</text>", r)), std::string::npos);
}

}  // namespace
}  // namespace mm::placement
