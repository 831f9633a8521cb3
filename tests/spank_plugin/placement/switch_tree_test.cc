// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/placement/switch_tree.h"

#include <gtest/gtest.h>

#include <random>

#include "common/error.h"

namespace mm::placement {
namespace {

// As `scontrol show topology` prints it: a switch above repeats the nodes below. node5 is in no switch.
constexpr const char* tree =
    "SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=node[1,4]\n"
    "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=node[2-3]\n"
    "SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=node6\n"
    "SwitchName=spine Level=1 LinkSpeed=1 Nodes=node[1-4,6] Switches=leaf[0-2]\n";

std::vector<std::string> walked(const std::vector<std::string>& nodes, const std::string& text) {
  std::vector<std::string> out;
  for (const int i : walk_order(parse_topology(text, "t"), nodes)) out.push_back(nodes[static_cast<size_t>(i)]);
  return out;
}

using Names = std::vector<std::string>;

TEST(SwitchTree, WalksLeafByLeaf) {
  EXPECT_EQ(walked({"node1", "node2", "node3", "node4", "node5", "node6"}, tree),
            (Names{"node1", "node4", "node2", "node3", "node6", "node5"}));
  const SwitchTree t = parse_topology(tree, "t");
  EXPECT_EQ(t.switches[static_cast<size_t>(t.leaf("node3"))].name, "leaf1");
  EXPECT_EQ(t.leaf("node5"), -1);
}

TEST(SwitchTree, BlocksCommentsAndCase) {
  const SwitchTree t =
      parse_topology("# all\nblockname=b1 nodes=n[1-2] # first\nBlockName=b2 Nodes=n[3-4]\nBlockSizes=2\n", "t");
  EXPECT_EQ(t.switches.size(), 2U);
  EXPECT_NE(t.leaf("n2"), t.leaf("n3"));
  EXPECT_EQ(walked({"n4", "n1", "n3", "n2"}, "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\n"),
            (Names{"n1", "n2", "n4", "n3"}));
}

TEST(SwitchTree, FlatOrBrokenKeepsTheOrder) {
  const Names nodes = {"b", "a", "c"};
  for (const char* text : {"", "No topology information available\n", "SwitchName=s Level=1 Switches=s\n",
                           "SwitchName=r Switches=s\nSwitchName=s Switches=t\nSwitchName=t Switches=r Nodes=ALL\n"})
    EXPECT_EQ(walked(nodes, text), nodes) << text;
  try {
    parse_topology("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n[1-\n", "topology.conf");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("topology.conf:2: "), std::string::npos);
  }
}

TEST(SwitchTree, SurvivesDamage) {
  std::mt19937 random(9);
  for (int i = 0; i < 5000; ++i) {
    std::string text = tree;
    for (int k = 0; k < 5; ++k) {
      const size_t at = random() % text.size();
      if (random() % 2 != 0)
        text[at] = static_cast<char>("=,[]-\n 019sl"[random() % 12]);
      else
        text.insert(at, std::string(tree).substr(random() % 100, random() % 30));
    }
    try {
      const SwitchTree t = parse_topology(text, "t");
      EXPECT_EQ(walk_order(t, {"node1", "node2"}).size(), 2U);
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace mm::placement
