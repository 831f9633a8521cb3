// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/node_order.h"

#include <gtest/gtest.h>

namespace mm::spank {
namespace {

using Names = std::vector<std::string>;

TEST(NodeOrder, Counts) {
  EXPECT_EQ(expand_counts("2(x3),1"), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(expand_counts("8"), std::vector<int>{8});
  for (const char* bad : {"x", "2(x", "2(x)", "2(y3)", "-1", "2(x0)", "2(x99999999)", "2)"})
    EXPECT_FALSE(expand_counts(bad)) << bad;
}

TEST(NodeOrder, HostFiles) {
  EXPECT_EQ(nodes_of_host_file("# mine\nn3 n1\n\nn3*4\nn[1-2]\n"), (Names{"n3", "n1", "n2"}));
}

}  // namespace
}  // namespace mm::spank
