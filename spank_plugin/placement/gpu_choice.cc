// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/placement/gpu_choice.h"

#include <algorithm>
#include <tuple>

namespace mm::placement {
namespace {

constexpr double giga = 1e9;
constexpr int most_rounds = 100;

struct Seconds {
  double busiest = 0, spread = 0;
  // Less by more than rounding.
  bool operator<(const Seconds& other) const {
    if (busiest < other.busiest * (1 - 1e-9)) return true;
    return busiest <= other.busiest * (1 + 1e-9) && spread < other.spread * (1 - 1e-9);
  }
};

Seconds price(const Slots& slots, const Links& links, const NodeTraffic& traffic, const std::vector<int>& gpus) {
  Seconds total;
  std::vector<double> nics(slots.nics.size());
  int here[64];
  for (int f = 0; f < traffic.families; ++f) {
    std::fill(nics.begin(), nics.end(), 0.0);
    double busiest = 0, packages = 0;
    for (const NodeTraffic::Part& part : traffic.parts) {
      if (part.family != f) continue;
      const int count = static_cast<int>(std::min<size_t>(part.ranks.size(), 64));
      for (int i = 0; i < count; ++i) here[i] = gpus[static_cast<size_t>(part.ranks[static_cast<size_t>(i)])];
      if (count > 1) {
        bool shared = false;
        const double seconds = ring_seconds(slots, here, count, part.bytes, shared);
        busiest = std::max(busiest, seconds);
        total.spread += seconds;
        if (shared) packages += part.bytes;
      }
      if (part.leaves)
        for (int i = 0; i < count; ++i)
          nics[static_cast<size_t>(slots.nic[static_cast<size_t>(here[i])])] += part.bytes / count;
    }
    for (size_t k = 0; k < nics.size(); ++k) busiest = std::max(busiest, nics[k] / (slots.nics[k] * giga));
    busiest = std::max(busiest, packages / (links.packages * giga));
    total.busiest += busiest;
    total.spread += packages / (links.packages * giga);
  }
  return total;
}

}  // namespace

Memberships::Memberships(const std::vector<Family>& families, int ranks)
    : families_(families), begin_(static_cast<size_t>(ranks) + 1, 0) {
  for (const Family& f : families)
    for (const int rank : f.members) ++begin_[static_cast<size_t>(rank) + 1];
  for (size_t i = 1; i < begin_.size(); ++i) begin_[i] += begin_[i - 1];
  seats_.resize(static_cast<size_t>(begin_.back()) + 1);
  std::vector<int> next(begin_.begin(), begin_.end() - 1);
  for (size_t f = 0; f < families.size(); ++f)
    for (int g = 0; g < families[f].size(); ++g) {
      const int first = families[f].begin[static_cast<size_t>(g)], last = families[f].begin[static_cast<size_t>(g) + 1];
      for (int i = first; i < last; ++i)
        seats_[static_cast<size_t>(next[static_cast<size_t>(families[f].members[static_cast<size_t>(i)])]++)] = {
            static_cast<int>(f), g, i};
    }
}

NodeTraffic node_traffic(const Memberships& memberships, const std::vector<int>& ranks) {
  NodeTraffic out;
  out.ranks = static_cast<int>(ranks.size());
  out.families = static_cast<int>(memberships.families().size());
  struct At {
    int family, group, index, local;
    auto key() const { return std::tuple(family, group, index); }
  };
  std::vector<At> all;
  for (size_t i = 0; i < ranks.size(); ++i)
    for (const Memberships::Seat* s = memberships.begin(ranks[i]); s != memberships.end(ranks[i]); ++s)
      all.push_back({s->family, s->group, s->index, static_cast<int>(i)});
  std::sort(all.begin(), all.end(), [](const At& a, const At& b) { return a.key() < b.key(); });
  for (size_t i = 0; i < all.size();) {
    size_t end = i;
    while (end < all.size() && all[end].family == all[i].family && all[end].group == all[i].group) ++end;
    const Family& family = memberships.families()[static_cast<size_t>(all[i].family)];
    const size_t g = static_cast<size_t>(all[i].group);
    const int first = family.begin[g], last = family.begin[g + 1];
    const double bytes = family.amounts[g].bytes;
    if (family.ring) {
      NodeTraffic::Part part{all[i].family, static_cast<size_t>(last - first) > end - i, {}, bytes};
      for (size_t k = i; k < end; ++k) part.ranks.push_back(all[k].local);
      out.parts.push_back(std::move(part));
    } else {
      for (size_t k = i; k < end; ++k) {
        if (all[k].index > first && (k == i || all[k - 1].index + 1 != all[k].index))
          out.parts.push_back({all[k].family, true, {all[k].local}, bytes});
        if (all[k].index + 1 == last) continue;
        if (k + 1 < end && all[k + 1].index == all[k].index + 1)
          out.parts.push_back({all[k].family, false, {all[k].local, all[k + 1].local}, bytes});
        else
          out.parts.push_back({all[k].family, true, {all[k].local}, bytes});
      }
    }
    i = end;
  }
  std::sort(out.parts.begin(), out.parts.end());
  return out;
}

std::vector<int> choose_gpus(const Slots& slots, const Links& links, const NodeTraffic& traffic,
                             const std::vector<int>& usable) {
  const size_t ranks = static_cast<size_t>(traffic.ranks);
  std::vector<int> order = usable;  // the first `ranks` of it are the answer
  if (ranks < 1 || order.size() < 2)
    return {order.begin(), order.begin() + static_cast<std::ptrdiff_t>(std::min(ranks, order.size()))};
  const bool alike =
      slots.nics.size() == 1 && std::all_of(slots.over_pci.begin(), slots.over_pci.end(), [](char p) { return p == 0; }) &&
      std::all_of(slots.bandwidth.begin(), slots.bandwidth.end(), [&](double b) { return b == slots.bandwidth.front(); });
  if (!alike) {
    Seconds best = price(slots, links, traffic, order);
    for (int round = 0; round < most_rounds; ++round) {
      bool better = false;
      for (size_t i = 0; i < ranks; ++i)
        for (size_t j = i + 1; j < order.size(); ++j) {
          std::swap(order[i], order[j]);
          const Seconds now = price(slots, links, traffic, order);
          if (now < best)
            best = now, better = true;
          else
            std::swap(order[i], order[j]);
        }
      if (!better) break;
    }
  }
  order.resize(ranks);
  return order;
}

}  // namespace mm::placement
