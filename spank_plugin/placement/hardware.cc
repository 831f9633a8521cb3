// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/placement/hardware.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <tuple>

namespace mm::placement {

std::string format_address(const PciAddress& a) {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", a.domain, a.bus, a.device, a.function);
}

std::optional<PciAddress> parse_address(std::string_view text) {
  uint32_t part[4] = {};
  const size_t colons = static_cast<size_t>(std::count(text.begin(), text.end(), ':'));
  if (colons != 1 && colons != 2) return {};
  size_t k = 2 - colons;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (; k < 4; ++k) {
    const auto [next, error] = std::from_chars(at, end, part[k], 16);
    if (error != std::errc()) return {};
    if (k < 3 && (next == end || *next != (k < 2 ? ':' : '.'))) return {};
    at = next + (k < 3 ? 1 : 0);
  }
  if (at != end || part[1] > 0xff || part[2] > 0x1f || part[3] > 7) return {};
  return PciAddress{part[0], static_cast<int>(part[1]), static_cast<int>(part[2]), static_cast<int>(part[3])};
}

void find_cpuless(std::vector<Numa>& numa, const std::vector<bool>& special) {
  std::vector<size_t> order(numa.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto key = [&](size_t i) { return std::tuple(numa[i].cpus.count(), bool{special[i]}, numa[i].number); };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  CpuSet covered;
  for (const size_t i : order) {
    numa[i].has_cpus = !(numa[i].cpus - covered).empty();
    covered |= numa[i].cpus;
  }
}

}  // namespace mm::placement
