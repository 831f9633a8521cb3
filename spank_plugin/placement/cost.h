// SPDX-License-Identifier: Apache-2.0
// What a rank map costs: seconds of communication in a step.
//
// The model. Groups of one kind talk at the same time, kinds one after the other; so a step's time is the sum over kinds, and a
// kind's time is that of its busiest link, bytes over bandwidth, plus its slowest group's latency. Overlap with computation is
// not counted.
//
// - A collective is a ring. It visits its nodes in the order of ranks, as NCCL's does, enters and leaves each once, and every
// rank
//   sends `bytes`: so each hop between nodes carries `bytes`. On the node they are spread over the NICs of the group's ranks
//   there.
// - Inside a node a ring is as fast as the worst of its GPUs' second-best links in the group: NVLink or XGMI where there is,
// else
//   PCI by nearness. Rings over PCI that span packages share the link between packages.
// - A chain (pipeline, encoder) sends `bytes` between neighbours, both ways.
// - A GPU sends over its first NIC; all of the kind's bytes over a NIC add up, each direction for itself.
// - A switch has uplinks for its share of the allocation: bandwidth of the job's nodes below it over `oversubscription`; bytes
// add up,
//   each direction for itself. Between two NICs of different rails (their numbers on the node differ) even nodes of one leaf go
//   over the level above, where the site says that its network has rails.
// - A call of a ring of g ranks takes ceil(log2 g) times its worst hop's latency, one of a chain its hop's.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "spank_plugin/placement/node_map.h"
#include "spank_plugin/placement/switch_tree.h"
#include "spank_plugin/placement/traffic.h"

namespace mm::placement {

// GB/s and seconds.
struct Links {
  double inside = 200;                              // between GPUs of a node of which nothing is known
  std::array<double, 5> pci = {22, 18, 14, 12, 9};  // by Gpu::near
  double packages = 20;                             // between two packages, each way, for traffic over PCI
  double nic = 25;                                  // of a NIC whose speed is not known (200 Gb/s)
  double oversubscription = 2;                      // of every level
  bool rails = false;
  double inside_latency = 4e-6, node_latency = 10e-6, level_latency = 1e-6;
};

// The hardware of a node as the cost needs it, prepared once.
struct Slots {
  int gpus = 0;
  std::vector<double> bandwidth;  // [i * gpus + j], GB/s
  std::vector<char> over_pci;     // [i * gpus + j]
  std::vector<int> nic, package;  // of each GPU
  std::vector<double> nics;       // GB/s of each NIC
};
// Seconds of a ring's part inside a node, alone; `shared`: it also crosses the link between packages, with `bytes` each way.
double ring_seconds(const Slots& slots, const int* gpus, int count, double bytes, bool& shared);
// For a node of which nothing is known: `gpus` alike, one NIC.
Slots unknown_slots(int gpus, const Links& links);
// The first `gpus` of the map, or as many as it has CPUs' places where there is no GPU at all.
Slots slots_of(const NodeMap& map, const Links& links);

struct Node {
  std::string name;
  int slots = 0;                           // ranks that it takes
  int hardware = 0;                        // index
  double flops = 1, memory_bandwidth = 1;  // relative to the others: pictures want the one, text the other
};

struct Cluster {
  std::vector<Node> nodes;  // in Slurm's order
  std::vector<Slots> hardware;
  std::vector<NodeMap> maps;  // as hardware; a map without GPUs where nothing is known
  SwitchTree switches;
  Links links;
};

// Where each rank is. gpu: index in the node's hardware.
struct RankMap {
  std::vector<int> node, gpu;
};

struct Cost {
  std::array<double, kinds> seconds = {};
  std::array<double, kinds> floor = {};  // of it, what no switch is to blame for
  double total = 0;
  double compute = 0;  // of the slowest pipeline stage, where nodes differ in speed; 0: they do not
  double spread = 0;   // sum over links of the seconds that each is busy: tells maps of the same time apart
};

class Pricer {
 public:
  Pricer(const Cluster& cluster, std::vector<Family> families);
  Cost price(const RankMap& map);

  const Cluster& cluster() const { return cluster_; }
  const std::vector<Family>& families() const { return families_; }
  int leaf(int node) const { return leaf_[static_cast<size_t>(node)]; }
  int parent(int s) const { return parent_[static_cast<size_t>(s)]; }
  int depth(int s) const { return depth_[static_cast<size_t>(s)]; }
  int switches() const { return static_cast<int>(parent_.size()); }
  double uplink(int s) const { return uplink_[static_cast<size_t>(s)]; }  // bytes a second; 0: none above

 private:
  struct Visit {
    int node = 0, first = 0, count = 0;  // members as indices into sorted_
  };
  void price_ring(const Family& family, int group, const RankMap& map);
  void price_chain(const Family& family, int group, const RankMap& map);
  double between(int a, int b, double bytes, bool other_rail);  // over switches; the latency of the hop
  double inside(const Slots& slots, const int* gpus, int count, double bytes, int node);
  const Slots& slots(int node) const {
    return cluster_.hardware[static_cast<size_t>(cluster_.nodes[static_cast<size_t>(node)].hardware)];
  }
  int nic(int node, int gpu) const;

  const Cluster& cluster_;
  std::vector<Family> families_;
  std::vector<int> leaf_, parent_, depth_, nic_begin_;
  std::vector<double> uplink_, nic_speed_;
  // of the family that is priced
  std::vector<double> out_, in_, up_, down_, packages_;
  std::vector<int> stamp_, place_, gpus_;
  std::vector<Visit> visits_;
  int stamp_now_ = 0;
  double busiest_ = 0, latency_ = 0;
};

}  // namespace mm::placement
