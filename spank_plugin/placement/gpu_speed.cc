// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/placement/gpu_speed.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace mm::placement {
namespace {

struct Row {
  std::string_view name;
  GpuSpeed speed;
};

// From the makers' data sheets: tensor or matrix cores, dense, bfloat16 or, before there was that, half precision. Of two rows
// that fit the first counts.
constexpr Row rows[] = {
    {"GB200", {2500, 8000}},     {"B200", {2250, 8000}},        {"H200", {989, 4800}},       {"GH200", {990, 4000}},
    {"H100 NVL", {835, 3938}},   {"H100 PCIe", {756, 2039}},    {"H100", {989, 3350}},       {"H800", {989, 3350}},
    {"A100 40GB", {312, 1555}},  {"A100 SXM4 40GB", {312, 1555}}, {"A100 PCIE 40GB", {312, 1555}}, {"A100", {312, 2039}},
    {"A800", {312, 2039}},       {"L40S", {362, 864}},          {"L40", {181, 864}},         {"L4", {121, 300}},
    {"A40", {150, 696}},         {"A30", {165, 933}},           {"A10", {125, 600}},         {"A10G", {125, 600}},
    {"V100", {125, 900}},        {"V100S", {130, 1134}},        {"T4", {65, 320}},           {"P100", {21, 732}},
    {"MI355X", {2517, 8000}},    {"MI325X", {1307, 6000}},      {"MI300X", {1307, 5300}},    {"MI300A", {981, 5300}},
    {"MI250X", {192, 1638}},     {"MI250", {181, 1638}},        {"MI210", {181, 1638}},      {"MI100", {185, 1229}},
    {"MI60", {29.5, 1024}},      {"Max 1550", {832, 3277}},     {"Max 1100", {362, 1229}},
};

// Words in capitals between single blanks, with one before and after: "NVIDIA A100-SXM4-80GB" -> " NVIDIA A100 SXM4 80GB ".
std::string words_of(std::string_view text) {
  std::string out = " ";
  for (const char c : text) {
    const unsigned char u = static_cast<unsigned char>(c);
    if (std::isalnum(u) != 0)
      out += static_cast<char>(std::toupper(u));
    else if (out.back() != ' ')
      out += ' ';
  }
  return out.back() == ' ' ? out : out + ' ';
}

}  // namespace

std::optional<GpuSpeed> speed_of_gpu(std::string_view model) {
  const std::string words = words_of(model);
  for (const Row& row : rows)
    if (words.find(words_of(row.name)) != std::string::npos) return row.speed;
  return {};
}

void set_model_speeds(std::vector<Node>& nodes, const std::vector<NodeMap>& maps, const std::vector<int>& map_of_node) {
  std::vector<GpuSpeed> of_map(maps.size());
  GpuSpeed fastest;
  for (const int m : map_of_node) {
    GpuSpeed& speed = of_map[static_cast<size_t>(m)];
    if (speed.tflops > 0) continue;
    for (const Gpu& gpu : maps[static_cast<size_t>(m)].gpus) {
      const std::optional<GpuSpeed> known = speed_of_gpu(gpu.model);
      if (!known) return;
      if (speed.tflops == 0) speed = *known;
      speed = {std::min(speed.tflops, known->tflops), std::min(speed.bandwidth, known->bandwidth)};
    }
    if (speed.tflops == 0) return;
    fastest = {std::max(fastest.tflops, speed.tflops), std::max(fastest.bandwidth, speed.bandwidth)};
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    const GpuSpeed& speed = of_map[static_cast<size_t>(map_of_node[i])];
    nodes[i].flops = speed.tflops / fastest.tflops;
    nodes[i].memory_bandwidth = speed.bandwidth / fastest.bandwidth;
  }
}

}  // namespace mm::placement
