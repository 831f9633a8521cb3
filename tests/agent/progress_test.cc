// SPDX-License-Identifier: Apache-2.0
#include "agent/registry/progress.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <random>

#include "agent/registry/pace.h"

namespace mm::agent {
namespace {

using std::chrono::milliseconds;

const TimePoint start{};

Progress trained(int steps, int step_ms) {
  Progress p;
  update(p, {{"PHASE", "train"}}, start);
  for (int i = 1; i <= steps; ++i) update(p, {{"STEP", std::to_string(i)}}, start + milliseconds(i * step_ms));
  return p;
}

TEST(Progress, LimitIsLearntFromItsOwnSteps) {
  EXPECT_EQ(hang_limit(trained(8, 3000), 0), 30.0);
  EXPECT_EQ(hang_limit(trained(8, 20), 0), 10.0);  // the least
  EXPECT_EQ(hang_limit(trained(8, 3000), 4), 4.0);  // given
  EXPECT_EQ(hang_limit(trained(3, 100), 0), 600.0);  // two step times are too few
}

TEST(Progress, OneSlowStepDoesNotMoveTheMedian) {
  Progress p = trained(9, 2000);
  update(p, {{"STEP", "10"}}, start + milliseconds(9 * 2000 + 500000));
  EXPECT_EQ(hang_limit(p, 0), 20.0);
}

TEST(Progress, TimeInOtherPhasesIsNoStepTime) {
  Progress p = trained(5, 2000);
  update(p, {{"PHASE", "save"}}, start + milliseconds(10000));
  EXPECT_EQ(hang_limit(p, 7), 600.0);
  update(p, {{"PHASE", "train"}, {"CHECKPOINT", "5"}}, start + milliseconds(400000));
  update(p, {{"STEP", "6"}}, start + milliseconds(402000));
  EXPECT_EQ(hang_limit(p, 0), 20.0);
  EXPECT_EQ(p.checkpoint, 5);
}

TEST(Progress, WhatDoesNotReportOrHasEndedIsNotJudged) {
  EXPECT_FALSE(hang_limit(Progress(), 5));
  Progress p = trained(5, 100);
  update(p, {{"PHASE", "end"}}, start + milliseconds(1000));
  EXPECT_FALSE(hang_limit(p, 5));
}

TEST(Progress, RepeatedStepIsNoProgress) {
  Progress p = trained(5, 100);
  update(p, {{"STEP", "5"}, {"LOSS", "1.5"}}, start + milliseconds(90000));
  EXPECT_EQ(p.last, start + milliseconds(500));
  EXPECT_EQ(p.loss, "1.5");
}

TEST(Progress, OwnWorkOfSteps) {
  Progress p;
  update(p, {{"PHASE", "train"}, {"STEP", "1"}, {"GROUP", "stage 0"}}, start);
  for (int i = 2; i < 100; ++i) update(p, {{"STEP", std::to_string(i)}, {"BUSY", std::to_string(i)}}, start + milliseconds(100 * i));
  EXPECT_EQ(p.group, "stage0") << "one word";
  ASSERT_EQ(p.busy_seconds.size(), 32u);
  EXPECT_EQ(p.busy_seconds.back(), 99);
  for (const char* wrong : {"nan", "-3", "", "inf", "x"}) update(p, {{"STEP", std::to_string(p.step + 1)}, {"BUSY", wrong}}, start);
  for (const double s : p.busy_seconds) EXPECT_TRUE(s >= 0 && s < 100) << s;
  const auto before = p.busy_seconds;
  update(p, {{"PHASE", "save"}, {"STEP", std::to_string(p.step)}, {"BUSY", "1"}}, start);
  EXPECT_EQ(p.busy_seconds, before) << "no step, no news";
}

std::vector<Pace> paces(int ranks, int slow, double factor, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> noise(0, 0.02);
  std::vector<Pace> out;
  for (int r = 0; r < ranks; ++r) {
    // A pipeline's last stage has more to do; that is no fault of its ranks.
    const bool last_stage = r >= ranks * 3 / 4;
    out.push_back({r, fmt::format("n{}", r / 8), last_stage ? "stage1" : "stage0", (last_stage ? 1.6 : 1.0) * (1 + noise(random)) * (r == slow ? factor : 1)});
  }
  return out;
}

TEST(Stragglers, OneSlowRankAmongItsLikeAndNobodyElse) {
  int found = 0, others = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    const int ranks = 16 << seed % 4, slow = static_cast<int>(seed * 7) % ranks;
    EXPECT_TRUE(find_stragglers(paces(ranks, -1, 1, seed)).empty());
    for (const Straggler& s : find_stragglers(paces(ranks, slow, 1.4, seed))) (s.pace.rank == slow ? found : others) += 1;
  }
  EXPECT_GE(found, 195) << "a group of four may be too noisy to tell";
  EXPECT_EQ(others, 0);
  EXPECT_TRUE(find_stragglers({{0, "a", "", 1}, {1, "b", "", 9}}).empty()) << "two cannot say who is slow";
  EXPECT_TRUE(find_stragglers({}).empty());
  // Where half of them are slow there is no straggler.
  std::vector<Pace> mixed;
  for (int r = 0; r < 32; ++r) mixed.push_back({r, "n", "", r % 2 ? 1.0 : 2.0});
  EXPECT_TRUE(find_stragglers(mixed).empty());
}

RankState rank(int r, int64_t step, double idle, char state = 'R', const std::string& phase = "train") {
  return {r, fmt::format("n{}", r / 2), phase, step, idle, phase == "train" ? 10.0 : 600.0, state};
}

TEST(Hang, BlamesTheStoppedRankNotItsPeers) {
  const auto v = judge_hang({rank(0, 7, 12), rank(1, 7, 12), rank(2, 7, 11.9, 'T'), rank(3, 7, 12)});
  ASSERT_TRUE(v);
  EXPECT_EQ(v->rank, 2);
  EXPECT_EQ(v->node, "n1");
  EXPECT_NE(v->evidence.find("stopped"), std::string::npos);
}

TEST(Hang, BlamesTheOneBehind) {
  const auto v = judge_hang({rank(0, 8, 12), rank(1, 8, 12), rank(2, 8, 12), rank(3, 7, 13)});
  ASSERT_TRUE(v);
  EXPECT_EQ(v->rank, 3);
}

TEST(Hang, BlamesUninterruptibleSleepWhereStepsAreEqual) {
  const auto v = judge_hang({rank(0, 8, 12), rank(1, 8, 12, 'D'), rank(2, 8, 14)});
  ASSERT_TRUE(v);
  EXPECT_EQ(v->rank, 1);
}

TEST(Hang, WaitsForARankThatMayTakeLonger) {
  EXPECT_FALSE(judge_hang({rank(0, 8, 12, 'R', "save"), rank(1, 8, 30), rank(2, 8, 30)}));
  EXPECT_TRUE(judge_hang({rank(0, 8, 601, 'R', "save"), rank(1, 8, 601), rank(2, 8, 601)}));
  // Stopped is stopped, in whatever phase.
  const auto v = judge_hang({rank(0, 8, 12, 'T', "save"), rank(1, 8, 30)});
  ASSERT_TRUE(v);
  EXPECT_EQ(v->rank, 0);
}

TEST(Hang, AStoppedRankIsTheCauseEvenWhileAllSave) {
  RankState stopped = rank(1, 8, 7, 'T', "save");
  stopped.limit = 6;
  const auto v = judge_hang({rank(0, 8, 7, 'S', "save"), stopped, rank(2, 8, 7, 'S', "save")});
  ASSERT_TRUE(v);
  EXPECT_EQ(v->rank, 1);
  Progress p;
  p.phase = "save";
  EXPECT_EQ(hang_limit(p, 6), 600);
  EXPECT_EQ(stopped_limit(p, 6), 6);
  EXPECT_EQ(stopped_limit(p, 0), 10);
  p.phase = "end";
  EXPECT_FALSE(stopped_limit(p, 6));
}

TEST(Hang, NobodyOverdueIsNoHang) {
  EXPECT_FALSE(judge_hang({rank(0, 8, 9, 'T'), rank(1, 8, 9)}));
  EXPECT_FALSE(judge_hang({}));
}

}  // namespace
}  // namespace mm::agent
