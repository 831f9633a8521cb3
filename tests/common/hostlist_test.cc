// SPDX-License-Identifier: Apache-2.0
#include "common/hostlist.h"

#include <gtest/gtest.h>

#include "common/error.h"

namespace mm {
namespace {

using Names = std::vector<std::string>;

TEST(Hostlist, ExpandsTheFormsThatSlurmWrites) {
  EXPECT_EQ(expand_hostlist("n[1-3,5]"), (Names{"n1", "n2", "n3", "n5"}));
  EXPECT_EQ(expand_hostlist("nodeA,nodeB[001,003],nodeC"), (Names{"nodeA", "nodeB001", "nodeB003", "nodeC"}));
  EXPECT_EQ(expand_hostlist("rack[0-1]_blade[0-1]"), (Names{"rack0_blade0", "rack0_blade1", "rack1_blade0", "rack1_blade1"}));
  EXPECT_EQ(expand_hostlist("c1001a-s[11,17]"), (Names{"c1001a-s11", "c1001a-s17"}));
  EXPECT_EQ(expand_hostlist("c457-[011-012]"), (Names{"c457-011", "c457-012"}));
  EXPECT_EQ(expand_hostlist("n[08-11]"), (Names{"n08", "n09", "n10", "n11"}));
  EXPECT_EQ(expand_hostlist(""), Names{});
}

TEST(Hostlist, RefusesWhatIsNoListAndNamesIt) {
  for (const char* bad : {"n[1-", "n1]", "n[a-b]", "n[5-1]", "n[]", "n[1-99999999]", "n[1-60000]x[1-60000]", "n[-3]"}) {
    try {
      expand_hostlist(bad);
      ADD_FAILURE() << bad;
    } catch (const Error& e) {
      EXPECT_EQ(e.status, exit_status::usage);
      EXPECT_NE(std::string(e.what()).find(bad), std::string::npos);
    }
  }
}

TEST(Hostlist, CompressionIsUndoneByExpansion) {
  EXPECT_EQ(compress_hostlist({"n1", "n2", "n4"}), "n[1-2,4]");
  EXPECT_EQ(compress_hostlist({"n09", "n10", "login"}), "n[09-10],login");
  for (const Names& names : {Names{"n2", "n1", "n3"}, Names{"a1", "b1", "b2", "b3", "a2"}, Names{"x", "y7"}, Names{"n9", "n10", "n11"}, Names{}})
    EXPECT_EQ(expand_hostlist(compress_hostlist(names)), names);
}

}  // namespace
}  // namespace mm
