// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/node_order.h"

#include <gtest/gtest.h>

namespace mm::spank {
namespace {

using Names = std::vector<std::string>;

// As `scontrol show topology` prints it; node5 is in no switch.
constexpr const char* tree =
    "SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=node[1,4]\n"
    "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=node[2-3]\n"
    "SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=node6\n"
    "SwitchName=spine Level=1 LinkSpeed=1 Nodes=node[1-4,6] Switches=leaf[1,0],leaf2\n";

TEST(NodeOrder, FollowsTheSwitchTree) {
  EXPECT_EQ(order_by_switches({"node1", "node2", "node3", "node4", "node5", "node6"}, tree),
            (Names{"node2", "node3", "node1", "node4", "node6", "node5"}));
  EXPECT_EQ(order_by_switches({"node1", "node3", "node4"}, tree), (Names{"node3", "node1", "node4"}));
}

TEST(NodeOrder, FlatOrBrokenTopologyKeepsSlurmsOrder) {
  const Names nodes = {"b", "a", "c"};
  EXPECT_EQ(order_by_switches(nodes, ""), nodes);
  EXPECT_EQ(order_by_switches(nodes, "No topology information available\n"), nodes);
  EXPECT_EQ(order_by_switches(nodes, "SwitchName=s Level=1 Switches=s\n"), nodes);  // its own child
  EXPECT_EQ(order_by_switches(nodes, "SwitchName=r Switches=s\nSwitchName=s Switches=t\nSwitchName=t Switches=s\n"),
            nodes);  // a ring
}

TEST(NodeOrder, Counts) {
  EXPECT_EQ(expand_counts("2(x3),1"), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(expand_counts("8"), std::vector<int>{8});
  for (const char* bad : {"x", "2(x", "2(x)", "2(y3)", "-1", "2(x0)", "2(x99999999)", "2)"})
    EXPECT_FALSE(expand_counts(bad)) << bad;
}

TEST(NodeOrder, HostFiles) {
  EXPECT_EQ(host_file({"b", "a"}, {2, 1}), "b\nb\na\n");
  EXPECT_EQ(nodes_of_host_file("# mine\nn3 n1\n\nn3*4\nn[1-2]\n"), (Names{"n3", "n1", "n2"}));
}

}  // namespace
}  // namespace mm::spank
