// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/placement/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "spank_plugin/placement/search.h"

namespace mm::placement {
namespace {

constexpr int gpu_size = 34, gap = 4, margin = 20, level_height = 46, columns = 4;

std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) >= 0x20)
      out += c;
  }
  return out;
}

// Hue by stage, lightness by replica: neighbours in a pipeline differ in hue, neighbours in a data group hardly.
std::string colour(const Job& job, int rank) {
  if (rank >= job.mesh.world_size()) return "hsl(0,0%,75%)";
  const Coordinates c = job.mesh.coordinates(rank);
  const double hue = 360.0 * c.pp / job.mesh.pp, light = 55 + 30.0 * (c.dp * job.mesh.cp + c.cp) / (job.mesh.dp * job.mesh.cp);
  return fmt::format("hsl({:.0f},70%,{:.0f}%)", hue, light);
}

}  // namespace

std::string draw(const Cluster& cluster, const Job& job, const Placement& p) {
  const std::vector<int> walk = walk_nodes(cluster);
  int levels = 0, most = 1;
  for (const SwitchTree::Switch& s : cluster.switches.switches) levels = std::max(levels, s.depth + 1);
  for (const Node& n : cluster.nodes) most = std::max(most, cluster.hardware[static_cast<size_t>(n.hardware)].gpus);
  const int wide = std::min(columns, most), rows = (most + columns - 1) / columns;
  const int node_width = wide * (gpu_size + gap) + 2 * gap, node_height = rows * (gpu_size + gap) + 22;
  const int width = static_cast<int>(walk.size()) * (node_width + 10) + 2 * margin;
  const int top = margin + 44 + levels * level_height, height = top + node_height + margin;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n"
      "<text x=\"{2}\" y=\"{3}\" font-size=\"14\">tp {4}, cp {5}, dp {6}, pp {7}: {8:.4f} s of communication a step, {9:.4f} s "
      "in block order</text>\n"
      "<text x=\"{2}\" y=\"{10}\">colour: pipeline stage; shade: data replica; number: rank</text>\n",
      width, height, margin, margin + 6, job.mesh.tp, job.mesh.cp, job.mesh.dp, job.mesh.pp, p.ours.total, p.block.total,
      margin + 24);
  // Centres of switches: over the nodes below them.
  struct Span {
    int from = -1, to = 0;
  };
  std::vector<Span> span(cluster.switches.switches.size());
  const auto left_of = [&](size_t place) { return margin + static_cast<int>(place) * (node_width + 10); };
  for (size_t i = 0; i < walk.size(); ++i)
    for (int s = cluster.switches.leaf(cluster.nodes[static_cast<size_t>(walk[i])].name); s >= 0;
         s = cluster.switches.switches[static_cast<size_t>(s)].parent) {
      Span& x = span[static_cast<size_t>(s)];
      if (x.from < 0) x.from = left_of(i);
      x.to = left_of(i) + node_width;
    }
  for (size_t s = 0; s < span.size(); ++s) {
    if (span[s].from < 0) continue;
    const SwitchTree::Switch& w = cluster.switches.switches[s];
    const int y = margin + 40 + w.depth * level_height, middle = (span[s].from + span[s].to) / 2;
    if (w.parent >= 0) {
      const Span& up = span[static_cast<size_t>(w.parent)];
      out += fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"#888\"/>\n", middle, y, (up.from + up.to) / 2,
                         y - level_height + 18);
    }
    out += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"18\" rx=\"4\" fill=\"#dde\" stroke=\"#446\"/>\n",
                       span[s].from, y, span[s].to - span[s].from);
    out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", middle, y + 13, escape(w.name));
  }
  std::vector<int> place(cluster.nodes.size(), 0);
  for (size_t i = 0; i < walk.size(); ++i) {
    place[static_cast<size_t>(walk[i])] = static_cast<int>(i);
    const Node& n = cluster.nodes[static_cast<size_t>(walk[i])];
    out += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#f7f7f7\" stroke=\"#666\"/>\n", left_of(i),
                       top, node_width, node_height);
    out += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", left_of(i) + gap, top + 13, escape(n.name));
    for (int g = 0; g < cluster.hardware[static_cast<size_t>(n.hardware)].gpus; ++g)
      out += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"white\" stroke=\"#ccc\"/>\n",
                         left_of(i) + gap + g % columns * (gpu_size + gap), top + 18 + g / columns * (gpu_size + gap), gpu_size,
                         gpu_size);
  }
  for (int r = 0; r < job.ranks(); ++r) {
    const size_t rank = static_cast<size_t>(r);
    const int gpu = p.map.gpu[rank],
              x = left_of(static_cast<size_t>(place[static_cast<size_t>(p.map.node[rank])])) + gap +
                  gpu % columns * (gpu_size + gap),
              y = top + 18 + gpu / columns * (gpu_size + gap);
    std::string what = "encoder";
    if (r < job.mesh.world_size()) {
      const Coordinates c = job.mesh.coordinates(r);
      what = fmt::format("tp {} cp {} dp {} pp {}", c.tp, c.cp, c.dp, c.pp);
    }
    out += fmt::format(
        "<g><title>rank {}: {}</title><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" stroke=\"#444\"/>", r,
        what, x, y, gpu_size, gpu_size, colour(job, r));
    out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text></g>\n", x + gpu_size / 2, y + gpu_size / 2 + 4,
                       r);
  }
  return out + "</svg>\n";
}

}  // namespace mm::placement
