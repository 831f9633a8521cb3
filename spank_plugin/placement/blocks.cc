// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "spank_plugin/placement/search.h"

namespace mm::placement {
namespace {

std::array<int, 4> sides(const Layout& m) {
  return {m.tp, m.cp, m.dp, m.pp};
}

struct Packing {
  std::vector<int> whole, rest;
};

// Blocks of the box along each axis.
std::array<int, 4> extents(const Layout& m, const Box& box) {
  std::array<int, 4> out = sides(m);
  for (size_t a = 0; a < 4; ++a) out[a] /= box.size[a];
  return out;
}

// Appends every order of the loops in which those of one axis are in order of their steps and no two of them in a row (they
// would be one loop).
void interleave(const std::vector<Loop>& loops, std::vector<Nest>& out) {
  std::vector<size_t> order(loops.size());
  std::iota(order.begin(), order.end(), size_t{0});
  do {
    Nest nest;
    bool good = true;
    for (const size_t i : order) {
      for (const Loop& inner : nest) good = good && (inner.axis != loops[i].axis || inner.step < loops[i].step);
      good = good && (nest.empty() || nest.back().axis != loops[i].axis);
      nest.push_back(loops[i]);
    }
    if (good) out.push_back(std::move(nest));
  } while (std::next_permutation(order.begin(), order.end()));
}

}  // namespace

std::vector<Box> boxes_of(const Layout& mesh, int volume) {
  std::vector<Box> out;
  const std::array<int, 4> side = sides(mesh);
  for (int t = 1; t <= std::min(side[0], volume); ++t) {
    if (side[0] % t != 0 || volume % t != 0) continue;
    for (int c = 1; c <= side[1] && t * c <= volume; ++c) {
      if (side[1] % c != 0 || volume % (t * c) != 0) continue;
      for (int d = 1; d <= side[2] && t * c * d <= volume; ++d) {
        if (side[2] % d != 0 || volume % (t * c * d) != 0) continue;
        const int p = volume / (t * c * d);
        if (p <= side[3] && side[3] % p == 0) out.push_back({{t, c, d, p}});
      }
    }
  }
  return out;
}

std::vector<std::array<int, 4>> axis_orders(const Layout& mesh, const Box& box) {
  const std::array<int, 4> side = sides(mesh);
  std::vector<int> moving, still;
  for (int a = 0; a < 4; ++a) (side[static_cast<size_t>(a)] > box.size[static_cast<size_t>(a)] ? moving : still).push_back(a);
  std::vector<std::array<int, 4>> out;
  do {
    std::array<int, 4> order{};
    std::copy(moving.begin(), moving.end(), order.begin());
    std::copy(still.begin(), still.end(), order.begin() + static_cast<std::ptrdiff_t>(moving.size()));
    out.push_back(order);
  } while (std::next_permutation(moving.begin(), moving.end()));
  return out;
}

std::vector<Nest> nests_of(const Layout& mesh, const Box& box) {
  const std::array<int, 4> extent = extents(mesh, box);
  std::vector<int> axes;
  for (int a = 0; a < 4; ++a)
    if (extent[static_cast<size_t>(a)] > 1) axes.push_back(a);
  std::vector<int> longest = axes;
  std::stable_sort(longest.begin(), longest.end(),
                   [&](int a, int b) { return extent[static_cast<size_t>(a)] > extent[static_cast<size_t>(b)]; });
  longest.resize(std::min<size_t>(longest.size(), 2));
  // Where each of the longest is cut; 1: nowhere.
  std::array<std::vector<int>, 2> cuts = {{{1}, {1}}};
  for (size_t k = 0; k < longest.size(); ++k)
    for (int c = 2; c < extent[static_cast<size_t>(longest[k])]; ++c)
      if (extent[static_cast<size_t>(longest[k])] % c == 0) cuts[k].push_back(c);
  std::vector<Nest> out;
  for (const int sum : {0, 1, 2})  // axes that are cut
    for (const int first : cuts[0])
      for (const int second : cuts[1]) {
        if ((first > 1) + (second > 1) != sum) continue;
        std::vector<Loop> loops;
        for (const int a : axes) {
          const int cut = a == longest.front() ? first : longest.size() > 1 && a == longest.back() ? second : 1;
          const int e = extent[static_cast<size_t>(a)];
          if (cut > 1) loops.push_back({a, 1, cut});
          loops.push_back({a, cut, e / cut});
        }
        interleave(loops, out);
      }
  return out;
}

std::vector<int> blocks_of_nest(const Layout& mesh, const Box& box, const Nest& nest) {
  const std::array<int, 4> extent = extents(mesh, box);
  const std::array<int, 4> stride = {1, extent[0], extent[0] * extent[1], extent[0] * extent[1] * extent[2]};
  std::vector<int> out = {0};
  for (const Loop& loop : nest) {
    const size_t inner = out.size();
    for (int k = 1; k < loop.count; ++k)
      for (size_t i = 0; i < inner; ++i) out.push_back(out[i] + k * loop.step * stride[static_cast<size_t>(loop.axis)]);
  }
  return out;
}

std::vector<std::vector<int>> blocks_in_order(const Layout& mesh, const Box& box, const std::array<int, 4>& axes) {
  const std::array<int, 4> side = sides(mesh), b = box.size;
  const std::array<int, 4> stride = {1, mesh.tp, mesh.tp * mesh.cp, mesh.tp * mesh.cp * mesh.dp};
  std::vector<int> offsets;  // of a block's ranks from its first
  for (int p = 0; p < b[3]; ++p)
    for (int d = 0; d < b[2]; ++d)
      for (int c = 0; c < b[1]; ++c)
        for (int t = 0; t < b[0]; ++t) offsets.push_back(t * stride[0] + c * stride[1] + d * stride[2] + p * stride[3]);
  int count = 1;
  for (size_t a = 0; a < 4; ++a) count *= side[a] / b[a];
  std::vector<std::vector<int>> out(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    int rest = i, first = 0;
    for (const int axis : axes) {
      const size_t a = static_cast<size_t>(axis);
      const int extent = side[a] / b[a];
      first += rest % extent * b[a] * stride[a];
      rest /= extent;
    }
    std::vector<int>& block = out[static_cast<size_t>(i)];
    block.reserve(offsets.size());
    for (const int offset : offsets) block.push_back(first + offset);
  }
  return out;
}

std::vector<int> walk_nodes(const Cluster& cluster) {
  std::vector<std::string> names;
  for (const Node& n : cluster.nodes) names.push_back(n.name);
  return walk_order(cluster.switches, names);
}

std::vector<int> packed_nodes(const Pricer& pricer, const std::vector<int>& walk, int unit) {
  // Switches from the deepest up: each hands what it could not fill to the one above.
  std::vector<Packing> at(static_cast<size_t>(pricer.switches()) + 1);  // the last: above all
  const auto above = [&](int s) { return s < 0 ? at.size() - 1 : static_cast<size_t>(s); };
  std::vector<int> order(static_cast<size_t>(pricer.switches()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return pricer.depth(a) > pricer.depth(b); });
  for (const int node : walk) at[above(pricer.leaf(node))].rest.push_back(node);
  const auto pack = [&](Packing& p) {
    const size_t whole = p.rest.size() / static_cast<size_t>(unit) * static_cast<size_t>(unit);
    p.whole.insert(p.whole.end(), p.rest.begin(), p.rest.begin() + static_cast<std::ptrdiff_t>(whole));
    p.rest.erase(p.rest.begin(), p.rest.begin() + static_cast<std::ptrdiff_t>(whole));
  };
  for (const int s : order) {
    Packing& p = at[static_cast<size_t>(s)];
    pack(p);
    Packing& up = at[above(pricer.parent(s))];
    up.whole.insert(up.whole.end(), p.whole.begin(), p.whole.end());
    up.rest.insert(up.rest.end(), p.rest.begin(), p.rest.end());
  }
  Packing& top = at.back();
  pack(top);
  top.whole.insert(top.whole.end(), top.rest.begin(), top.rest.end());
  return std::move(top.whole);
}

}  // namespace mm::placement
