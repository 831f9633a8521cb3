// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/node_order.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "common/hostlist.h"
#include "spank_plugin/command_line.h"

namespace mm::spank {
namespace {

struct Switch {
  int level = 0;
  std::vector<std::string> nodes, switches;
};

std::map<std::string, Switch> parse_topology(std::string_view text) {
  std::map<std::string, Switch> out;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::vector<std::string> words = split_words(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    std::string name;
    Switch s;
    for (const std::string& word : words) {
      const size_t equals = word.find('=');
      if (equals == std::string::npos) continue;
      const std::string key = word.substr(0, equals), value = word.substr(equals + 1);
      if (key == "SwitchName") name = value;
      if (key == "Level") std::from_chars(value.data(), value.data() + value.size(), s.level);
      if (key == "Nodes") s.nodes = expand_hostlist(value);
      if (key == "Switches") s.switches = expand_hostlist(value);
    }
    if (!name.empty()) out[name] = std::move(s);
  }
  return out;
}

void walk(const std::map<std::string, Switch>& tree, const std::string& name, int depth, std::vector<std::string>& out) {
  const auto found = tree.find(name);
  if (found == tree.end() || depth > 64) return;
  // A switch above the leaves names the nodes of all its children, too.
  if (found->second.switches.empty()) out.insert(out.end(), found->second.nodes.begin(), found->second.nodes.end());
  for (const std::string& child : found->second.switches) walk(tree, child, depth + 1, out);
}

}  // namespace

std::vector<std::string> order_by_switches(const std::vector<std::string>& nodes, std::string_view topology) {
  const std::map<std::string, Switch> tree = parse_topology(topology);
  std::unordered_set<std::string> children;
  for (const auto& [name, s] : tree) children.insert(s.switches.begin(), s.switches.end());
  std::vector<std::string> walked;
  for (const auto& [name, s] : tree)
    if (children.count(name) == 0) walk(tree, name, 0, walked);
  std::unordered_map<std::string, size_t> place;
  for (size_t i = 0; i < walked.size(); ++i) place.emplace(walked[i], i);
  const auto place_of = [&](const std::string& node) {
    const auto found = place.find(node);
    return found == place.end() ? walked.size() : found->second;
  };
  std::vector<std::string> out = nodes;
  std::stable_sort(out.begin(), out.end(),
                   [&](const std::string& a, const std::string& b) { return place_of(a) < place_of(b); });
  return out;
}

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

std::string host_file(const std::vector<std::string>& nodes, const std::vector<int>& tasks) {
  std::string out;
  for (size_t i = 0; i < nodes.size() && i < tasks.size(); ++i)
    for (int k = 0; k < tasks[i]; ++k) out += nodes[i] + '\n';
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
