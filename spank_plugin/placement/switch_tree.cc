// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/placement/switch_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "common/error.h"
#include "common/hostlist.h"

namespace mm::placement {
namespace {

constexpr size_t most_switches = 65536;

std::string_view take_word(std::string_view& line) {
  while (!line.empty() && (line.front() == ' ' || line.front() == '\t' || line.front() == '\r')) line.remove_prefix(1);
  size_t end = 0;
  while (end < line.size() && line[end] != ' ' && line[end] != '\t' && line[end] != '\r') ++end;
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(end);
  return word;
}

bool same_key(std::string_view word, std::string_view key) {
  return word.size() == key.size() && std::equal(word.begin(), word.end(), key.begin(), [](char a, char b) {
           return (a >= 'A' && a <= 'Z' ? a + 32 : a) == (b >= 'A' && b <= 'Z' ? b + 32 : b);
         });
}

}  // namespace

int SwitchTree::leaf(const std::string& node) const {
  const auto found = leaf_of.find(node);
  return found == leaf_of.end() ? -1 : found->second;
}

SwitchTree parse_topology(std::string_view text, const std::string& source) {
  SwitchTree tree;
  std::unordered_map<std::string, int> by_name;
  std::vector<std::vector<std::string>> children, nodes;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    line = line.substr(0, line.find('#'));
    std::string name;
    std::vector<std::string> below, hosts;
    try {
      while (true) {
        const std::string_view word = take_word(line);
        if (word.empty()) break;
        const size_t equals = word.find('=');
        if (equals == std::string_view::npos) continue;
        const std::string_view key = word.substr(0, equals), value = word.substr(equals + 1);
        if (same_key(key, "SwitchName") || same_key(key, "BlockName")) name = value;
        if (same_key(key, "Nodes") && value != "ALL") hosts = expand_hostlist(value);
        if (same_key(key, "Switches")) below = expand_hostlist(value);
      }
    } catch (const Error& e) {
      throw usage_error(fmt::format("{}:{}: {}", source, number, e.what()));
    }
    if (name.empty()) continue;
    if (tree.switches.size() >= most_switches)
      throw usage_error(fmt::format("{}:{}: more than {} switches", source, number, most_switches));
    const auto [at, is_new] = by_name.emplace(name, static_cast<int>(tree.switches.size()));
    if (is_new) {
      tree.switches.push_back({name, -1, 0});
      children.emplace_back();
      nodes.emplace_back();
    }
    const size_t s = static_cast<size_t>(at->second);
    children[s].insert(children[s].end(), below.begin(), below.end());
    nodes[s].insert(nodes[s].end(), hosts.begin(), hosts.end());
  }
  // A link that would close a ring is not taken.
  const auto is_above = [&](int candidate, int below) {
    for (int s = below; s >= 0; s = tree.switches[static_cast<size_t>(s)].parent)
      if (s == candidate) return true;
    return false;
  };
  for (size_t s = 0; s < children.size(); ++s)
    for (const std::string& child : children[s]) {
      const auto found = by_name.find(child);
      if (found == by_name.end()) continue;
      SwitchTree::Switch& c = tree.switches[static_cast<size_t>(found->second)];
      if (c.parent < 0 && !is_above(found->second, static_cast<int>(s))) c.parent = static_cast<int>(s);
    }
  for (SwitchTree::Switch& s : tree.switches)
    for (int p = s.parent; p >= 0; p = tree.switches[static_cast<size_t>(p)].parent) ++s.depth;
  for (size_t s = 0; s < nodes.size(); ++s)
    for (const std::string& node : nodes[s]) {
      const auto [at, is_new] = tree.leaf_of.emplace(node, static_cast<int>(s));
      if (!is_new && nodes[s].size() < nodes[static_cast<size_t>(at->second)].size()) at->second = static_cast<int>(s);
    }
  return tree;
}

std::vector<int> walk_order(const SwitchTree& tree, const std::vector<std::string>& nodes) {
  // A switch's place in the walk is the path of indices from its root.
  const auto path = [&](int s) {
    std::vector<int> out;
    for (; s >= 0; s = tree.switches[static_cast<size_t>(s)].parent) out.push_back(s);
    std::reverse(out.begin(), out.end());
    return out;
  };
  std::vector<std::vector<int>> key;
  for (const std::string& node : nodes) {
    const int leaf = tree.leaf(node);
    key.push_back(leaf < 0 ? std::vector<int>{static_cast<int>(tree.switches.size())} : path(leaf));
  }
  std::vector<int> order(nodes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return key[static_cast<size_t>(a)] < key[static_cast<size_t>(b)]; });
  return order;
}

}  // namespace mm::placement
