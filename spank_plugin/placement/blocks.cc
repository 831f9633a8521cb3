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
