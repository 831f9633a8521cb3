// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/node_order.h"

#include <charconv>
#include <unordered_set>

#include "common/hostlist.h"
#include "spank_plugin/command_line.h"

namespace mm::spank {
std::optional<std::vector<int>> expand_counts(std::string_view counts) {
  std::vector<int> out;
  while (!counts.empty()) {
    const size_t end = counts.find(',');
    const std::string_view item = counts.substr(0, end);
    counts = end == std::string_view::npos ? std::string_view() : counts.substr(end + 1);
    const char* last = item.data() + item.size();
    int tasks = 0, times = 1;
    const auto a = std::from_chars(item.data(), last, tasks);
    if (a.ec != std::errc() || tasks < 0) return {};
    if (a.ptr != last) {
      if (last - a.ptr < 4 || a.ptr[0] != '(' || a.ptr[1] != 'x' || last[-1] != ')') return {};
      const auto b = std::from_chars(a.ptr + 2, last - 1, times);
      if (b.ec != std::errc() || b.ptr != last - 1 || times < 1) return {};
    }
    if (out.size() + static_cast<size_t>(times) > 65536) return {};
    out.insert(out.end(), static_cast<size_t>(times), tasks);
  }
  return out;
}

std::vector<std::string> first_mentions(const std::vector<std::string>& hosts) {
  std::unordered_set<std::string> seen;
  std::vector<std::string> out;
  for (const std::string& host : hosts)
    if (seen.insert(host).second) out.push_back(host);
  return out;
}

std::vector<std::string> nodes_of_host_file(std::string_view text) {
  std::vector<std::string> hosts;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    for (const std::string& word : split_words(text.substr(0, end)))
      for (const std::string& host : expand_hostlist(std::string_view(word).substr(0, word.find('*')))) hosts.push_back(host);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return first_mentions(hosts);
}

}  // namespace mm::spank
