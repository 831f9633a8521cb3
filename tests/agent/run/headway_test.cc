// SPDX-License-Identifier: Apache-2.0
#include "agent/run/headway.h"

#include <gtest/gtest.h>

namespace mm::run {
namespace {

Progress at(int64_t step, bool trained) { return {step, trained, "train"}; }

TEST(Headway, AStepIsTrainingWhereItHasALossOnceOneHad) {
  Headway h({3, 0});
  EXPECT_FALSE(h.progress({}));
  EXPECT_FALSE(h.progress(at(0, false)));
  const auto first = h.progress(at(1, true));
  ASSERT_TRUE(first);
  EXPECT_EQ(first->resumed, 0);
  h.restarted(std::nullopt);
  h.launched();
  EXPECT_FALSE(h.progress(at(5, false))) << "says where it resumes";
  EXPECT_EQ(h.progress(at(6, true))->resumed, 5);
  Headway silent({3, 0});
  EXPECT_TRUE(silent.progress(at(4, false))) << "a program that never says a loss";
}

TEST(Headway, OnlyWhatGoesBeyondAllLaunchesRefillsTheBudget) {
  Headway h({3, 2});
  EXPECT_EQ(h.budget().used, 2) << "of earlier runs of the job";
  h.progress(at(12, true));
  EXPECT_EQ(h.budget().used, 0);
  const recovery::End end{9, 12};
  h.restarted(end);
  h.launched();
  h.progress(at(11, true));  // from an older checkpoint
  EXPECT_EQ(h.budget().used, 1);
  h.restarted(recovery::End{9, 11});
  h.launched();
  h.progress(at(12, true));
  EXPECT_EQ(h.budget().used, 2) << "no launch has come further than the first";
  EXPECT_EQ(h.history().size(), 2U);
  h.progress(at(13, true));
  EXPECT_EQ(h.budget().used, 0);
  EXPECT_TRUE(h.history().empty());
  EXPECT_EQ(h.step(), 13);
}

TEST(Headway, HistoryHoldsEndsOfTheSameKindOnEnd) {
  Headway h({9, 0});
  h.restarted(recovery::End{9, 1});
  h.restarted(std::nullopt);  // a hang, or a bad node
  h.restarted(recovery::End{9, 1});
  EXPECT_EQ(h.history().size(), 1U);
  EXPECT_EQ(h.budget().used, 3);
}

}  // namespace
}  // namespace mm::run
