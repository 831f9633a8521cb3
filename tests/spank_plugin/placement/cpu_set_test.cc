// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/placement/cpu_set.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "spank_plugin/placement/hardware.h"

namespace mm::placement {
namespace {

TEST(CpuSet, IsTheSetOfItsMembers) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    std::set<int> a, b;
    CpuSet x, y;
    for (unsigned i = 0; i < random() % 40; ++i) a.insert(static_cast<int>(random() % 300));
    for (unsigned i = 0; i < random() % 40; ++i) b.insert(static_cast<int>(random() % 300));
    for (const int i : a) x.add(i);
    for (const int i : b) y.add(i);
    std::set<int> both = a, common, rest;
    both.insert(b.begin(), b.end());
    for (const int i : a) (b.count(i) != 0 ? common : rest).insert(i);
    const auto members = [](const CpuSet& s) {
      const std::vector<int> m = s.members();
      return std::set<int>(m.begin(), m.end());
    };
    EXPECT_EQ(members(x | y), both);
    EXPECT_EQ(members(x & y), common);
    EXPECT_EQ(members(x - y), rest);
    EXPECT_EQ(x.intersects(y), !common.empty());
    EXPECT_EQ(x.includes(y), common == b);
    EXPECT_EQ(x.count(), static_cast<int>(a.size()));
    EXPECT_TRUE(parse_list(format_list(x)) == x);
  }
}

TEST(CpuSet, Texts) {
  EXPECT_EQ(format_list(*parse_mask("0x00000f0f")), "0-3,8-11");
  EXPECT_EQ(format_list(*parse_mask("00000001,00000000,80000000")), "31,64");
  for (const char* bad : {"", "0x", "g", "0x1g"}) EXPECT_FALSE(parse_mask(bad)) << bad;
  for (const char* bad : {"a", "3-1", "1-", "-1", "1-99999999", "1;2"}) EXPECT_FALSE(parse_list(bad)) << bad;
  EXPECT_EQ(CpuSet().first(), -1);
}

TEST(PciAddress, Texts) {
  EXPECT_EQ(format_address(*parse_address("00000000:3B:00.0")), "0000:3b:00.0");
  EXPECT_EQ(format_address(*parse_address("10000:e1:1f.7")), "10000:e1:1f.7");
  EXPECT_EQ(format_address(*parse_address("3b:00.0")), "0000:3b:00.0");
  for (const char* bad : {"", "x", "0000:3b:00", "0000:3b:20.0", "0000:3b:00.8", "0000:100:00.0", "0:0:0:0.0", "0000:3b:00.0 "})
    EXPECT_FALSE(parse_address(bad)) << bad;
}

}  // namespace
}  // namespace mm::placement
