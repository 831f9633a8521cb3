// SPDX-License-Identifier: Apache-2.0
#include "agent/run/roster.h"

#include <gtest/gtest.h>

namespace mm::run {
namespace {

using List = std::vector<std::string>;

AgentLink::Probe all_but(const List& bad) {
  AgentLink::Probe probe;
  for (const std::string n : {"a", "b", "c", "d"}) {
    if (std::find(bad.begin(), bad.end(), n) == bad.end())
      probe.good.push_back(n);
    else
      probe.why_bad[n] = "slurmd is gone";
  }
  return probe;
}

TEST(Roster, MovesRanksFromABadNodeToASpare) {
  Roster roster({"a", "b", "c", "d"}, 2);
  const auto choice = roster.choose(all_but({"b", "c"}), 0);
  ASSERT_TRUE(choice.possible);
  ASSERT_EQ(choice.moves.size(), 1U);
  EXPECT_EQ(choice.moves[0].from + choice.moves[0].why + choice.moves[0].to, "bslurmd is goned");
  EXPECT_EQ(roster.slots(), (List{"a", "d"}));
  EXPECT_EQ(roster.spares(), List{});
  // Not moved back where nothing forces it.
  EXPECT_TRUE(roster.choose(all_but({}), 1).possible);
  EXPECT_EQ(roster.slots(), (List{"a", "d"}));
  EXPECT_EQ(roster.spares(), (List{"b", "c"}));
}

TEST(Roster, ANodeWhoseFailureIsForetoldOnlyInNeed) {
  Roster roster({"a", "b", "c", "d"}, 2);
  AgentLink::Probe probe = all_but({});
  probe.doubtful["a"] = "gpu ecc: it may fail";
  const auto choice = roster.choose(probe, 0);
  ASSERT_EQ(choice.moves.size(), 1U);
  EXPECT_EQ(choice.moves[0].from + choice.moves[0].why + choice.moves[0].to, "agpu ecc: it may failc");
  EXPECT_EQ(roster.slots(), (List{"c", "b"}));
  probe = all_but({"a", "d"});
  probe.doubtful["c"] = "its disk";
  EXPECT_TRUE(roster.choose(probe, 1).possible);
  EXPECT_EQ(roster.slots(), (List{"c", "b"})) << "better than none";
}

TEST(Roster, ANodeThatIsDownForAWhileIsWorthWaitingForButBadHardwareIsNot) {
  Roster roster({"a", "b", "c", "d"}, 3);
  const auto wait = roster.choose(all_but({"b", "c"}), 0);
  EXPECT_FALSE(wait.possible);
  EXPECT_FALSE(wait.shortage.hopeless);
  EXPECT_EQ(wait.shortage.missing, "c: slurmd is gone");
  EXPECT_EQ(wait.shortage.good, 2);
  EXPECT_EQ(wait.shortage.bad, (List{"b", "c"}));
  roster.leave_out("a", "a lost its link", 1);
  roster.leave_out("b", "b lost its link", 1);
  const auto never = roster.choose(all_but({}), 2);
  EXPECT_FALSE(never.possible);
  EXPECT_TRUE(never.shortage.hopeless);
  EXPECT_EQ(never.shortage.missing, "b lost its link");
  EXPECT_EQ(roster.slots(), (List{"a", "b", "c"}));
}

TEST(Roster, AMendedNodeIsUsedInNeedOnly) {
  Roster roster({"a", "b", "c", "d"}, 3);
  roster.leave_out("a", "a lost its link", 0);
  ASSERT_TRUE(roster.choose(all_but({}), 100).possible);
  EXPECT_EQ(roster.slots(), (List{"d", "b", "c"}));
  roster.leave_out("b", "b lost its link", 100);
  ASSERT_TRUE(roster.choose(all_but({}), 100).possible);
  EXPECT_EQ(roster.slots(), (List{"d", "a", "c"}));
}

TEST(Roster, ANodeThatAProbeFoundBadAndThenGoodIsMended) {
  Roster roster({"a", "b", "c"}, 2);
  roster.leave_out("a", "a lost its link", 0);
  ASSERT_TRUE(roster.choose(all_but({"a"}), 0).possible);
  EXPECT_EQ(roster.slots(), (List{"c", "b"}));
  roster.leave_out("b", "b lost its link", 1);
  EXPECT_FALSE(roster.choose(all_but({"a", "b"}), 1).possible);
  const auto choice = roster.choose(all_but({"b"}), 2);
  ASSERT_TRUE(choice.possible && choice.mended);
  EXPECT_EQ(roster.slots(), (List{"c", "a"}));
  EXPECT_EQ(roster.keep({"b", "c"}), List{"a"}) << "Slurm has taken it out of the job";
  EXPECT_FALSE(roster.choose(all_but({"b"}), 3).possible);
}

TEST(Roster, ShrinksToTheNodesThatAreLeft) {
  Roster roster({"a", "b", "c", "d"}, 4);
  roster.leave_out("b", "b lost its link", 0);
  EXPECT_FALSE(roster.choose(all_but({"b"}), 0).possible);
  roster.shrink(2);
  ASSERT_TRUE(roster.choose(all_but({"b"}), 0).possible);
  EXPECT_EQ(roster.slots(), (List{"a", "c"}));
  EXPECT_EQ(roster.spares(), List{"d"});
}

TEST(Roster, WithoutAProbeAllCountAsGood) {
  Roster roster({"a", "b"}, 1);
  roster.leave_out("a", "x", 0);
  ASSERT_TRUE(roster.choose(std::nullopt, 0).possible);
  EXPECT_EQ(roster.slots(), List{"b"});
  roster.leave_out("b", "y", 0);
  EXPECT_TRUE(roster.choose(std::nullopt, 100).shortage.hopeless);
}

}  // namespace
}  // namespace mm::run
