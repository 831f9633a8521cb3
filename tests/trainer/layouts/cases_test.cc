// SPDX-License-Identifier: Apache-2.0
// What trainers have got wrong, as reported to them, each in several layouts against one rank: case N is line N of the list that
// tests named CaseN... in this folder and its neighbours go through.
#include <fmt/format.h>

#include <optional>

#include "tests/trainer/layouts/harness.h"

namespace mm::loop {
namespace {

// Two replicas; with an encoder whose ranks have nothing to do for one of them, too.
const std::vector<Case> two_replicas = {{2, 1, 1, 1, 1, 1},
                                        {2, 2, 1, 1, 2, 1},
                                        {2, 1, 2, 2, 3, 1},
                                        {2, 1, 1, 2, 1, 2, true},
                                        {2, 1, 1, 1, 1, 1, false, 1, 1},
                                        {2, 1, 1, 2, 3, 1, false, 2, 2},
                                        {2, 2, 1, 1, 2, 1, true, 1, 2}};

// Steps in which the second replica has text alone; nobody has a picture; nothing is trained; nothing is trained in the second
// replica; and one picture is on its way in all. Each rank's collectives are compared by the harness.
TEST_F(Layouts, Case01RanksWithoutPicturesOrLabelsStayInStep) {
  for (const char* micro_batch : {"2", "4"}) {  // several micro-batches of a replica, and one
    Settings settings = shard("odd", "pppptttt" "tttttttt" "uuuuuuuu" "ptpuuuuu" "uuuptttu");
    settings.push_back(fmt::format("parallel.micro_batch={}", micro_batch));
    const std::vector<Step> steps = expect_equals_one_rank("tiny", two_replicas, 5, settings);
    ASSERT_EQ(steps.size(), 5U);
    EXPECT_EQ(steps[2].tokens, 0);
    EXPECT_EQ(steps[2].loss, 0);
    EXPECT_EQ(steps[2].grad_norm, 0);
  }
}

// Sequences of other lengths in each micro-batch of a pipeline.
TEST_F(Layouts, Case02PipelinesAccumulateOverChangingLengths) {
  Settings settings = shard("lengths", "pmt1ptmp" "m1ppttmt" "tpmp1tpp");
  settings.push_back("parallel.micro_batch=1");
  expect_equals_one_rank("tiny",
                         {{1, 1, 1, 2, 1, 1},
                          {1, 1, 1, 4, 0, 1},
                          {2, 1, 1, 2, 2, 2},
                          {1, 2, 1, 2, 3, 2, true},
                          {1, 1, 1, 2, 1, 2, false, 1, 2},
                          {2, 1, 1, 2, 2, 1, false, 2, 1}},
                         3, settings);
}

TEST_F(Layouts, Case03TheClippedNormCountsEachGradientOnce) {
  const double clip = 0.05;
  const std::vector<Step> steps = expect_equals_one_rank("tiny",
                                                         {{2, 1, 1, 1, 0, 1},
                                                          {1, 2, 1, 1, 1, 1},
                                                          {2, 2, 1, 1, 3, 1},
                                                          {2, 2, 2, 1, 2, 1},
                                                          {1, 2, 1, 2, 1, 1},
                                                          {2, 2, 1, 1, 1, 1, false, 2, 2}},
                                                         4, {fmt::format("optim.clip={}", clip)});
  for (const Step& step : steps) EXPECT_GT(step.grad_norm, 2 * clip) << "nothing was clipped";
}

// Micro-batches with 1, 101 and no trained tokens weigh what they hold.
TEST_F(Layouts, Case04MicroBatchesWithOneManyAndNoTokens) {
  Settings settings = shard("counts", "1mup" "umu1" "uuuu");
  settings.insert(settings.end(), {"data.global_batch=4", "parallel.micro_batch=1"});
  const std::vector<Step> steps = expect_equals_one_rank(
      "tiny", {{2, 1, 1, 1, 1, 1}, {4, 1, 1, 1, 2, 1}, {1, 2, 1, 2, 0, 1}, {2, 1, 1, 2, 3, 2}, {2, 1, 1, 1, 2, 1, false, 1, 2}}, 4, settings);
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_EQ(steps[1].tokens, 102);
  EXPECT_EQ(steps[2].tokens, 0);
  Settings whole = settings;
  whole.back() = "parallel.micro_batch=4";
  whole.push_back("run.steps=4");
  ASSERT_TRUE(run("tiny", {}, "whole", whole));
  expect_close(steps, this->steps("whole"), "one micro-batch");
}

// The tied embedding's gradient has a part from the first stage and a part from the last.
TEST_F(Layouts, TiedEmbeddingsAcrossPipelineStages) {
  std::vector<Case> cases;
  for (int zero = 0; zero <= 3; ++zero) {
    cases.push_back({1, 1, 1, 2, zero, 1});
    cases.push_back({2, 1, 1, 2, zero, 1, false, 1, 2});
  }
  cases.push_back({1, 2, 1, 2, 1, 1});
  cases.push_back({2, 1, 2, 2, 2, 1});
  expect_equals_one_rank("tied", cases, 4);
}

// A run goes on under one layout after another, encoders of its own and colocated ones, two steps each.
TEST_F(Layouts, Case07OtherLayoutsContinueTheRun) {
  const Settings steady = {"optim.min_lr_ratio=1", "data.shuffle=true"};  // the schedule of the learning rate does not depend on where a run ends
  const std::vector<Case> hops = {{},
                                  {1, 2, 1, 1, 1, 1, false, 2, 1},
                                  {1, 4, 1, 1, 3, 1},
                                  {2, 1, 1, 2, 3, 1, false, 1, 2},
                                  {2, 2, 2, 1, 2, 1},
                                  {1, 1, 1, 2, 0, 2, false, 2, 2},
                                  {4, 1, 1, 1, 1, 1, false, 2, 1}};
  int end = 0;
  for (const Case& c : hops) {
    Settings settings = steady;
    settings.push_back(fmt::format("run.steps={}", end += 2));
    ASSERT_TRUE(run("tiny", c, "hops", settings));
  }
  Settings settings = steady;
  settings.push_back(fmt::format("run.steps={}", end));
  ASSERT_TRUE(run("tiny", {}, "whole-run", settings));
  expect_close(steps("whole-run"), steps("hops"), "hops");
  for (const char* role : {"param", "m", "v"}) expect_close(trained("tiny", "whole-run", role), trained("tiny", "hops", role), 1e-9, 1e-14, role);
}

TEST_F(Layouts, Case07TheSameLayoutContinuesToTheBit) {
  for (const Case& c : std::vector<Case>{{1, 2, 2, 1, 2, 1}, {2, 1, 1, 2, 3, 1, false, 2, 1}, {1, 1, 1, 2, 1, 2, true, 1, 2}}) {
    const std::string whole = "whole-" + c.name(), parts = "parts-" + c.name();
    const auto to = [&](int end, const std::string& dir) {
      return run("narrow", c, dir, {"optim.min_lr_ratio=1", fmt::format("run.steps={}", end)});
    };
    ASSERT_TRUE(to(6, whole) && to(2, parts) && to(5, parts) && to(6, parts));
    EXPECT_EQ(steps(whole), steps(parts)) << c.name();
    for (const char* role : {"param", "m", "v"}) EXPECT_EQ(trained("narrow", whole, role), trained("narrow", parts, role)) << c.name() << " " << role;
  }
}

// With a learning rate of nothing, what a run holds under one layout after another is what it began with: to the bit. The
// key heads of gqa cannot be dealt out to four ranks, and its vocabulary is cut unevenly.
TEST_F(Layouts, Case08ReshardingKeepsEveryBit) {
  const Settings still = {"optim.lr=1e-300", "optim.weight_decay=0"};
  int end = 0;
  std::optional<Tensors> first;
  for (const Case& c : std::vector<Case>{{},
                                         {1, 4, 1, 1, 3, 1},
                                         {},
                                         {1, 2, 2, 2, 2, 1},
                                         {1, 3, 1, 1, 1, 1, false, 2, 2},
                                         {4, 1, 1, 1, 3, 1, false, 2, 1},
                                         {1, 1, 1, 4, 0, 1, false, 1, 2},
                                         {}}) {
    Settings settings = still;
    settings.push_back(fmt::format("run.steps={}", ++end));
    ASSERT_TRUE(run("gqa", c, "still", settings)) << c.name();
    const Tensors now = trained("gqa", "still");
    if (!first) first = now;
    EXPECT_EQ(*first, now) << c.name();
  }
}

TEST_F(Layouts, Case12FewerMicroBatchesThanStages) {
  for (const char* micro_batch : {"8", "4"})  // one, two
    for (const char* schedule : {"1f1b", "gpipe"})
      expect_equals_one_rank("tiny", {{1, 1, 1, 4, 1, 1}, {1, 2, 1, 4, 3, 1}, {1, 1, 1, 4, 2, 1, false, 2, 2}}, 2,
                             {fmt::format("parallel.micro_batch={}", micro_batch), fmt::format("parallel.schedule={}", schedule)});
  expect_equals_one_rank("tiny", {{1, 1, 1, 2, 1, 2}, {1, 1, 1, 2, 3, 2, false, 1, 2}}, 2, {"parallel.micro_batch=8"});
}

// An epoch of 64 samples in batches of 24: the stream goes on into the next epoch, on all ranks alike.
TEST_F(Layouts, Case14EpochsThatTheBatchDoesNotDivide) {
  const std::vector<Step> steps = expect_equals_one_rank(
      "tiny", {{2, 1, 1, 1, 1, 1}, {4, 1, 1, 1, 3, 1}, {2, 2, 1, 1, 2, 1}, {2, 1, 1, 2, 1, 1, false, 1, 2}}, 6,
      {"data.global_batch=24", "data.shuffle=true", "parallel.micro_batch=5"});
  EXPECT_EQ(steps.size(), 6U);
}

}  // namespace
}  // namespace mm::loop
