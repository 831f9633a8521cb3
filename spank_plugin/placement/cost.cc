// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/placement/cost.h"

#include <algorithm>
#include <cmath>

namespace mm::placement {
namespace {

constexpr double giga = 1e9;

}  // namespace

Slots unknown_slots(int gpus, const Links& links) {
  Slots s;
  s.gpus = gpus;
  const size_t n = static_cast<size_t>(gpus);
  s.bandwidth.assign(n * n, links.inside);
  s.over_pci.assign(n * n, 0);
  s.nic.assign(n, 0);
  s.package.assign(n, 0);
  s.nics = {links.nic};
  return s;
}

Slots slots_of(const NodeMap& map, const Links& links) {
  if (map.gpus.empty()) return unknown_slots(0, links);
  Slots s = unknown_slots(static_cast<int>(map.gpus.size()), links);
  const size_t n = map.gpus.size();
  for (size_t i = 0; i < n; ++i) {
    const Gpu& g = map.gpus[i];
    for (size_t j = 0; j < n; ++j) {
      s.bandwidth[i * n + j] = g.peer[j] > 0 ? g.peer[j] : links.pci[static_cast<size_t>(g.near[j])];
      s.over_pci[i * n + j] = g.peer[j] > 0 ? 0 : 1;
    }
    s.nic[i] = g.nics.empty() ? 0 : g.nics.front();
    // GPUs of one package are those that are near by it; the first of them names it.
    for (size_t j = 0; j <= i; ++j)
      if (g.near[j] <= 3) {
        s.package[i] = static_cast<int>(j);
        break;
      }
  }
  if (!map.nics.empty()) {
    s.nics.clear();
    for (const Nic& nic : map.nics) s.nics.push_back(nic.bandwidth > 0 ? std::min(nic.bandwidth, links.nic) : links.nic);
  }
  return s;
}

double ring_seconds(const Slots& slots, const int* gpus, int count, double bytes, bool& shared) {
  const int n = slots.gpus;
  double worst = 1e300;
  int left = 0;
  shared = false;
  for (int i = 0; i < count; ++i) {
    double best = 0, second = 0;
    bool pci = true;
    for (int j = 0; j < count; ++j) {
      if (i == j) continue;
      const size_t at = static_cast<size_t>(gpus[i] * n + gpus[j]);
      const double b = slots.bandwidth[at];
      pci = pci && slots.over_pci[at] != 0;
      if (b > best)
        second = best, best = b;
      else
        second = std::max(second, b);
    }
    worst = std::min(worst, count == 2 ? best : second);
    if (slots.package[static_cast<size_t>(gpus[i])] == slots.package[static_cast<size_t>(gpus[0])]) ++left;
    shared = shared || pci;
  }
  shared = shared && left < count;
  return bytes / (worst * giga);
}

Pricer::Pricer(const Cluster& cluster, std::vector<Family> families) : cluster_(cluster), families_(std::move(families)) {
  for (const SwitchTree::Switch& s : cluster.switches.switches) {
    parent_.push_back(s.parent);
    depth_.push_back(s.depth);
  }
  uplink_.assign(parent_.size(), 0);
  int nics = 0, most = 1;
  for (const Node& node : cluster.nodes) {
    const Slots& slots = cluster.hardware[static_cast<size_t>(node.hardware)];
    leaf_.push_back(cluster.switches.leaf(node.name));
    nic_begin_.push_back(nics);
    nics += static_cast<int>(slots.nics.size());
    double bandwidth = 0;
    for (const double speed : slots.nics) {
      nic_speed_.push_back(speed * giga);
      bandwidth += speed * giga;
    }
    most = std::max(most, slots.gpus);
    double share = 1 / cluster.links.oversubscription;
    for (int s = leaf_.back(); s >= 0 && parent(s) >= 0; s = parent(s), share /= cluster.links.oversubscription)
      uplink_[static_cast<size_t>(s)] += bandwidth * share;
  }
  out_.resize(nic_speed_.size());
  in_.resize(nic_speed_.size());
  up_.resize(parent_.size());
  down_.resize(parent_.size());
  packages_.resize(cluster.nodes.size());
  stamp_.assign(cluster.nodes.size(), 0);
  place_.assign(cluster.nodes.size(), 0);
}

int Pricer::nic(int node, int gpu) const {
  return nic_begin_[static_cast<size_t>(node)] + slots(node).nic[static_cast<size_t>(gpu)];
}

double Pricer::between(int a, int b, double bytes, bool other_rail) {
  const Links& links = cluster_.links;
  int x = leaf(a), y = leaf(b), levels = 0;
  if (x == y && x >= 0 && other_rail && links.rails) {
    up_[static_cast<size_t>(x)] += bytes;
    down_[static_cast<size_t>(x)] += bytes;
    return links.node_latency + 2 * links.level_latency;
  }
  while (x != y) {
    const bool climb = y < 0 || (x >= 0 && depth(x) >= depth(y));
    const bool both = x >= 0 && y >= 0 && depth(x) == depth(y);
    if (climb) {
      up_[static_cast<size_t>(x)] += bytes;
      x = parent(x);
      ++levels;
    }
    if (!climb || both) {
      down_[static_cast<size_t>(y)] += bytes;
      y = parent(y);
      ++levels;
    }
  }
  return links.node_latency + levels * links.level_latency;
}

double Pricer::inside(const Slots& slots, const int* gpus, int count, double bytes, int node) {
  bool shared = false;
  const double seconds = ring_seconds(slots, gpus, count, bytes, shared);
  if (shared) packages_[static_cast<size_t>(node)] += bytes;
  return seconds;
}

void Pricer::price_ring(const Family& family, int group, const RankMap& map) {
  const int* members = &family.members[static_cast<size_t>(family.begin[static_cast<size_t>(group)])];
  const int size = family.begin[static_cast<size_t>(group) + 1] - family.begin[static_cast<size_t>(group)];
  const Amount amount = family.amounts[static_cast<size_t>(group)];
  ++stamp_now_;
  visits_.clear();
  for (int i = 0; i < size; ++i) {
    const int node = map.node[static_cast<size_t>(members[i])];
    if (stamp_[static_cast<size_t>(node)] != stamp_now_) {
      stamp_[static_cast<size_t>(node)] = stamp_now_;
      place_[static_cast<size_t>(node)] = static_cast<int>(visits_.size());
      visits_.push_back({node, 0, 0});
    }
    ++visits_[static_cast<size_t>(place_[static_cast<size_t>(node)])].count;
  }
  int first = 0;
  for (Visit& v : visits_) {
    v.first = first;
    first += v.count;
    v.count = 0;
  }
  gpus_.resize(static_cast<size_t>(size));
  for (int i = 0; i < size; ++i) {
    const size_t rank = static_cast<size_t>(members[i]);
    Visit& v = visits_[static_cast<size_t>(place_[static_cast<size_t>(map.node[rank])])];
    gpus_[static_cast<size_t>(v.first + v.count++)] = map.gpu[rank];
  }
  double hop = 0;
  for (size_t k = 0; k < visits_.size(); ++k) {
    const Visit& v = visits_[k];
    const int* gpus = &gpus_[static_cast<size_t>(v.first)];
    if (v.count > 1) {
      busiest_ = std::max(busiest_, inside(slots(v.node), gpus, v.count, amount.bytes, v.node));
      hop = std::max(hop, cluster_.links.inside_latency);
    }
    if (visits_.size() == 1) break;
    for (int i = 0; i < v.count; ++i) {
      const size_t at = static_cast<size_t>(nic(v.node, gpus[i]));
      out_[at] += amount.bytes / v.count;
      in_[at] += amount.bytes / v.count;
    }
    const Visit& next = visits_[(k + 1) % visits_.size()];
    const bool other_rail = nic(v.node, gpus[0]) - nic_begin_[static_cast<size_t>(v.node)] !=
                            nic(next.node, gpus_[static_cast<size_t>(next.first)]) - nic_begin_[static_cast<size_t>(next.node)];
    hop = std::max(hop, between(v.node, next.node, amount.bytes, other_rail));
  }
  latency_ = std::max(latency_, amount.calls * std::ceil(std::log2(size)) * hop);
}

void Pricer::price_chain(const Family& family, int group, const RankMap& map) {
  const int begin = family.begin[static_cast<size_t>(group)], end = family.begin[static_cast<size_t>(group) + 1];
  const Amount amount = family.amounts[static_cast<size_t>(group)];
  for (int i = begin; i + 1 < end; ++i) {
    const size_t a = static_cast<size_t>(family.members[static_cast<size_t>(i)]),
                 b = static_cast<size_t>(family.members[static_cast<size_t>(i) + 1]);
    const int here = map.node[a], there = map.node[b];
    double hop = cluster_.links.inside_latency;
    if (here == there) {
      const int gpus[2] = {map.gpu[a], map.gpu[b]};
      busiest_ = std::max(busiest_, inside(slots(here), gpus, 2, amount.bytes, here));
    } else {
      const int x = nic(here, map.gpu[a]), y = nic(there, map.gpu[b]);
      for (const int k : {x, y}) {
        out_[static_cast<size_t>(k)] += amount.bytes;
        in_[static_cast<size_t>(k)] += amount.bytes;
      }
      const bool other_rail = x - nic_begin_[static_cast<size_t>(here)] != y - nic_begin_[static_cast<size_t>(there)];
      hop = between(here, there, amount.bytes, other_rail);
      between(there, here, amount.bytes, other_rail);
    }
    latency_ = std::max(latency_, amount.calls * hop);
  }
}

Cost Pricer::price(const RankMap& map) {
  Cost cost;
  for (const Family& family : families_) {
    std::fill(out_.begin(), out_.end(), 0.0);
    std::fill(in_.begin(), in_.end(), 0.0);
    std::fill(up_.begin(), up_.end(), 0.0);
    std::fill(down_.begin(), down_.end(), 0.0);
    std::fill(packages_.begin(), packages_.end(), 0.0);
    busiest_ = latency_ = 0;
    for (int g = 0; g < family.size(); ++g) family.ring ? price_ring(family, g, map) : price_chain(family, g, map);
    const auto link = [&](double bytes, double bandwidth) {
      if (bandwidth <= 0 || bytes <= 0) return;
      busiest_ = std::max(busiest_, bytes / bandwidth);
      cost.spread += bytes / bandwidth;
    };
    for (size_t k = 0; k < out_.size(); ++k) {
      link(out_[k], nic_speed_[k]);
      link(in_[k], nic_speed_[k]);
    }
    for (const double bytes : packages_) link(bytes, cluster_.links.packages * giga);
    cost.floor[static_cast<size_t>(family.kind)] += busiest_;
    for (size_t s = 0; s < up_.size(); ++s) {
      link(up_[s], uplink_[s]);
      link(down_[s], uplink_[s]);
    }
    cost.seconds[static_cast<size_t>(family.kind)] += busiest_ + latency_;
  }
  for (const double s : cost.seconds) cost.total += s;
  return cost;
}

}  // namespace mm::placement
