// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/placement/uplinks.h"

#include <algorithm>
#include <cmath>

namespace mm::placement {

Uplinks::Uplinks(const Pricer& pricer, const Cost& start, const std::vector<std::vector<int>>& blocks)
    : pricer_(pricer),
      families_(static_cast<int>(pricer.families().size())),
      width_(2 * pricer.switches()),
      node_(blocks.size(), 0) {
  find_edges(blocks);
  for (int s = 0; s < pricer.switches(); ++s) slowness_.push_back(pricer.uplink(s) > 0 ? 1 / pricer.uplink(s) : 0);
  links_.assign(static_cast<size_t>(families_ * width_) + 1, 0);  // never empty
  for (const Family& f : pricer.families()) floor_.push_back(start.floor[static_cast<size_t>(f.kind)]);
  busiest_.assign(static_cast<size_t>(families_), 0);
  powers_.assign(static_cast<size_t>(families_), 0);
}

double Uplinks::power(double seconds) {
  constexpr double unit = 1e-2;  // keeps powers near 1
  const double x = seconds / unit, x2 = x * x, x4 = x2 * x2, x8 = x4 * x4;
  return x8;
}

double Uplinks::smooth_seconds() const {
  constexpr double unit = 1e-2;
  double total = 0;
  for (int f = 0; f < families_; ++f) {
    const double norm = unit * std::sqrt(std::sqrt(std::sqrt(std::max(0.0, powers_[static_cast<size_t>(f)]))));
    total += std::max(floor_[static_cast<size_t>(f)], norm);
  }
  return total;
}

void Uplinks::place(const std::vector<int>& node_of_block) {
  node_ = node_of_block;
  std::fill(links_.begin(), links_.end(), 0.0);
  std::fill(powers_.begin(), powers_.end(), 0.0);
  for (const Edge& e : edges_) add(e, 1);
  touched_.clear();
  for (int f = 0; f < families_; ++f) find_busiest(f);
}

double Uplinks::seconds() const {
  double total = 0;
  for (int f = 0; f < families_; ++f) total += std::max(floor_[static_cast<size_t>(f)], busiest(f));
  return total;
}

int Uplinks::busiest_switch(int family) const {
  return busiest(family) > floor_[static_cast<size_t>(family)] ? busiest_[static_cast<size_t>(family)] % width_ / 2 : -1;
}

void Uplinks::find_busiest(int f) {
  const auto first = links_.begin() + f * width_;
  busiest_[static_cast<size_t>(f)] = static_cast<int>(std::max_element(first, first + width_) - links_.begin());
}

// The links that this changes are compared with the busiest of each family, which is looked for anew only where it got less
// busy.
void Uplinks::exchange(int a, int b) {
  before_ = busiest_;
  seconds_before_.clear();
  for (int f = 0; f < families_; ++f) seconds_before_.push_back(busiest(f));
  powers_before_ = powers_;
  move(a, b);
  for (const int link : touched_)
    if (const size_t f = static_cast<size_t>(link / width_); links_[static_cast<size_t>(link)] > busiest(static_cast<int>(f)))
      busiest_[f] = link;
  for (int f = 0; f < families_; ++f)
    if (busiest(f) < seconds_before_[static_cast<size_t>(f)]) find_busiest(f);
}

void Uplinks::undo(int a, int b) {
  move(a, b);
  busiest_ = before_;
  powers_ = powers_before_;
}

void Uplinks::move(int a, int b) {
  touched_.clear();
  change(a, b, -1);
  std::swap(node_[static_cast<size_t>(a)], node_[static_cast<size_t>(b)]);
  change(a, b, 1);
}

void Uplinks::find_edges(const std::vector<std::vector<int>>& blocks) {
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

void Uplinks::add(const Edge& e, int sign) {
  int x = pricer_.leaf(node_[static_cast<size_t>(e.from)]), y = pricer_.leaf(node_[static_cast<size_t>(e.to)]);
  const auto use = [&](int s, int direction) {
    const int link = e.family * width_ + 2 * s + direction;
    double& seconds = links_[static_cast<size_t>(link)];
    double& powers = powers_[static_cast<size_t>(e.family)];
    powers -= power(seconds);
    seconds += sign * e.bytes * slowness_[static_cast<size_t>(s)];
    powers += power(seconds);
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

void Uplinks::change(int a, int b, int sign) {
  for (const int i : of_block_[static_cast<size_t>(a)]) add(edges_[static_cast<size_t>(i)], sign);
  for (const int i : of_block_[static_cast<size_t>(b)]) {
    const Edge& e = edges_[static_cast<size_t>(i)];
    if (e.from != a && e.to != a) add(e, sign);
  }
}

}  // namespace mm::placement
