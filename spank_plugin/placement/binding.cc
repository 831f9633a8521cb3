// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/placement/binding.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>

namespace mm::placement {
namespace {

// The available cores of a NUMA node, and the ranks that want to be there.
struct Place {
  int numa = -1;
  std::vector<CpuSet> cores;
  std::vector<bool> taken;
  std::vector<size_t> ranks;
};

double distance(const NodeMap& map, int a, int b) {
  if (a == b) return 0;
  for (size_t i = 0; i < map.numa.size(); ++i)
    for (size_t j = 0; j < map.numa.size(); ++j)
      if (map.numa[i].number == a && map.numa[j].number == b && i < map.numa_distance.size()) return map.numa_distance[i][j];
  return 20;
}

std::vector<Place> places_of(const NodeMap& map, const CpuSet& available) {
  std::vector<Place> out;
  std::vector<CpuSet> cpus;
  for (const Numa& n : map.numa)
    if (n.has_cpus) {
      out.push_back({n.number, {}, {}, {}});
      cpus.push_back(n.cpus);
    }
  if (out.empty()) {
    out.push_back({});
    cpus.push_back(available);
  }
  CpuSet left = available;
  for (const Core& core : map.cores) {
    const CpuSet usable = core.cpus & available;
    if (usable.empty()) continue;
    left -= usable;
    for (size_t i = 0; i < out.size(); ++i)
      if (usable.intersects(cpus[i])) {
        out[i].cores.push_back(usable);
        break;
      }
  }
  // CPUs that are granted but in no core of the tree (a tree of another machine): each for itself.
  for (const int cpu : left.members()) {
    CpuSet one;
    one.add(cpu);
    size_t at = 0;
    for (size_t i = 0; i < out.size(); ++i)
      if (cpus[i].contains(cpu)) at = i;
    out[at].cores.push_back(one);
  }
  std::erase_if(out, [](const Place& p) { return p.cores.empty(); });
  for (Place& p : out) p.taken.assign(p.cores.size(), false);
  return out;
}

void share_out(const NodeMap& map, const BindingRequest& request, Place& place, std::vector<Binding>& out) {
  const size_t cores = place.cores.size(), ranks = place.ranks.size();
  if (cores < ranks) {
    for (const size_t r : place.ranks)
      for (const CpuSet& core : place.cores) out[r].cpus |= core;
    return;
  }
  std::vector<size_t> quota(ranks);
  for (size_t k = 0; k < ranks; ++k) quota[k] = cores / ranks + (k < cores % ranks ? 1 : 0);
  const auto take = [&](size_t k, bool near_only) {
    Binding& b = out[place.ranks[k]];
    const int gpu = request.gpus[place.ranks[k]];
    for (size_t c = 0; c < cores && quota[k] > 0; ++c) {
      if (place.taken[c] || (near_only && (gpu < 0 || !map.gpus[static_cast<size_t>(gpu)].cpus.intersects(place.cores[c]))))
        continue;
      if (request.cpus_per_rank > 0 && b.cpus.count() >= request.cpus_per_rank) return;
      b.cpus |= place.cores[c];
      place.taken[c] = true;
      --quota[k];
    }
  };
  for (const bool near_only : {true, false})
    for (size_t k = 0; k < ranks; ++k) take(k, near_only);
}

// Exactly `wanted` CPUs: fewer threads of the last core, or free cores of the nearest places, then shared ones.
void adjust(const NodeMap& map, std::vector<Place>& places, int wanted, Binding& b) {
  while (b.cpus.count() > wanted) {
    CpuSet last;
    last.add(b.cpus.members().back());
    b.cpus -= last;
  }
  std::vector<Place*> order;
  for (Place& p : places) order.push_back(&p);
  std::stable_sort(order.begin(), order.end(), [&](const Place* x, const Place* y) {
    return distance(map, b.numa, x->numa) < distance(map, b.numa, y->numa);
  });
  for (const bool shared : {false, true})
    for (Place* p : order)
      for (size_t c = 0; c < p->cores.size(); ++c) {
        if (p->taken[c] && !shared) continue;
        for (const int cpu : p->cores[c].members())
          if (b.cpus.count() < wanted && !b.cpus.contains(cpu)) {
            b.cpus.add(cpu);
            p->taken[c] = true;
          }
      }
}

}  // namespace

std::vector<Binding> bind_ranks(const NodeMap& map, const BindingRequest& request) {
  std::vector<Binding> out(request.gpus.size());
  CpuSet all = map.allowed;
  if (all.empty())
    for (const Core& c : map.cores) all |= c.cpus;
  CpuSet available = request.granted.empty() ? all : request.granted;
  if (const CpuSet rest = available - request.reserved; !rest.empty()) available = rest;
  std::vector<Place> places = places_of(map, available);
  if (places.empty()) return out;
  size_t without = 0, dealt = 0;
  const auto placed_gpu = [&](size_t r) {
    const int gpu = request.gpus[r];
    return gpu >= 0 && map.gpus[static_cast<size_t>(gpu)].located ? gpu : -1;
  };
  for (size_t r = 0; r < out.size(); ++r) without += placed_gpu(r) < 0 ? 1 : 0;
  for (size_t r = 0; r < out.size(); ++r) {
    const int gpu = placed_gpu(r), numa = gpu >= 0 ? map.gpus[static_cast<size_t>(gpu)].numa : -1;
    if (gpu < 0 && without < places.size()) {
      // Fewer than NUMA nodes: each has several, whole.
      for (size_t i = dealt * places.size() / without; i < (dealt + 1) * places.size() / without; ++i)
        for (const CpuSet& core : places[i].cores) out[r].cpus |= core;
      ++dealt;
      continue;
    }
    size_t best = gpu < 0 ? dealt++ * places.size() / without : 0;
    if (gpu >= 0)
      for (size_t i = 1; i < places.size(); ++i)
        if (distance(map, numa, places[i].numa) < distance(map, numa, places[best].numa)) best = i;
    places[best].ranks.push_back(r);
    out[r].numa = places[best].numa;
  }
  for (Place& p : places) share_out(map, request, p, out);
  if (request.cpus_per_rank > 0)
    for (Binding& b : out) adjust(map, places, request.cpus_per_rank, b);
  return out;
}

std::optional<CpuSet> reserved_cpus(const NodeMap& map, std::string_view text) {
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error == std::errc() && end == text.data() + text.size()) {
    CpuSet out;
    for (size_t i = 0; i < map.cores.size() && static_cast<int>(i) < count; ++i) out |= map.cores[i].cpus;
    return count < 0 ? std::nullopt : std::optional(out);
  }
  return parse_list(text);
}

}  // namespace mm::placement
