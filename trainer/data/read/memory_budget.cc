// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/read/memory_budget.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

#include "common/error.h"
#include "common/files.h"

namespace mm::data {
namespace {

constexpr int64_t unlimited = std::numeric_limits<int64_t>::max();
constexpr int64_t least_budget = int64_t{32} << 20, largest_budget = int64_t{1} << 30;

std::string text_of(const std::string& path) {
  try {
    return read_file(path);
  } catch (const Error&) {
    return "";
  }
}

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return {};
  return value;
}

// The number behind `name` at the start of a line.
std::optional<int64_t> field(const std::string& text, std::string_view name) {
  std::istringstream lines(text);
  for (std::string word; lines >> word;) {
    int64_t value = 0;
    if (word == name && lines >> value) return value;
  }
  return {};
}

// What group `folder` leaves; the files have other names in each version.
int64_t left_in(const std::string& folder, const char* limit_file, const char* use_file, std::string_view cache_field) {
  const std::optional<int64_t> limit = number(text_of(folder + "/" + limit_file)), use = number(text_of(folder + "/" + use_file));
  // Version 1 writes a number near the largest for "none".
  if (!limit || !use || *limit > unlimited / 2) return unlimited;
  const int64_t cache = field(text_of(folder + "/memory.stat"), cache_field).value_or(0);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *use - cache));
}

template <class Left>
int64_t least_upwards(std::string group, const Left& left) {
  int64_t least = unlimited;
  for (;;) {
    least = std::min(least, left(group));
    if (group.empty() || group == "/") return least;
    group.resize(group.rfind('/'));
  }
}

}  // namespace

int64_t available_memory(const std::string& root) {
  int64_t least = unlimited;
  if (const auto kib = field(text_of(root + "/proc/meminfo"), "MemAvailable:")) least = *kib * 1024;
  std::istringstream groups(text_of(root + "/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos || second + 1 >= line.size() || line[second + 1] != '/') continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",", group = line.substr(second + 1);
    if (controllers == ",,")
      least = std::min(least, least_upwards(group, [&](const std::string& g) {
                         return left_in(root + "/sys/fs/cgroup" + g, "memory.max", "memory.current", "inactive_file");
                       }));
    else if (controllers.find(",memory,") != std::string::npos)
      least = std::min(least, least_upwards(group, [&](const std::string& g) {
                         return left_in(root + "/sys/fs/cgroup/memory" + g, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file");
                       }));
  }
  return least;
}

int64_t loader_budget(int64_t available, int loaders_of_node) {
  return std::clamp(available / 8 / std::max(1, loaders_of_node), least_budget, largest_budget);
}

}  // namespace mm::data
