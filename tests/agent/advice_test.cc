// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/advice.h"

#include "tests/agent/desk_fixture.h"

namespace mm::agent {
namespace {

class AdviceTest : public DeskFixture {
 protected:
  AdviceTest()
      : advice_(context_, events_, desk_, [this](ClientId client, const std::string& packet) {
          const KeyValues m = parse_key_values(packet);
          sent_ += std::to_string(client) + ":" + get(m, "ADVICE") + get(m, "LEVEL") + " ";
        }) {
    desk_.on_report([this](const Incident& i) { advice_.incident(i); });
    advice_.listen(1, "7");
  }
  static Report shortage() {
    Report r;
    r.part = Part::memory;
    r.code = "memory_high";
    r.evidence = {"97 % of the memory are used, usually 40 %"};
    return r;
  }
  // What was sent during some minutes, a look every five seconds.
  std::string minutes(int n) {
    sent_.clear();
    for (int i = 0; i < 12 * n; ++i) advice_.look(now_ += std::chrono::seconds(5));
    return sent_;
  }
  void job_with_spares(int spares) {
    Job& job = context_.registry["7"];
    job.id = "7";
    job.nodes = {"n1", "n2"};
    job.spares = spares;
    job.steps["0"].tasks[0].process.pid = 1;
  }
  std::string sent_;
  Clock::time_point now_ = Clock::now();
  Advice advice_;
};

TEST_F(AdviceTest, ShortageIsToldEachMinuteAndEndsWithTheFault) {
  EXPECT_EQ(minutes(5), "");
  desk_.report("host/memory_high", shortage());
  EXPECT_EQ(minutes(2), "1:shrink1 1:shrink2 ");
  desk_.over("host/memory_high");
  EXPECT_EQ(minutes(5), "");
  desk_.report("host/load", shortage());
  advice_.listen(2, "8");
  EXPECT_EQ(minutes(1), "1:shrink1 2:shrink1 ");
  advice_.forget(1);
  EXPECT_EQ(minutes(10), "2:shrink2 2:shrink3 ");
}

TEST_F(AdviceTest, WhatDoesNotHelpMovesTheRanksWhereThereIsASpare) {
  desk_.report("host/memory_high", shortage());
  minutes(10);
  EXPECT_FALSE(desk_.is_open("relief/move")) << "there are no ranks";
  job_with_spares(0);
  minutes(10);
  EXPECT_FALSE(desk_.is_open("relief/move")) << "there is nowhere to go";
  context_.registry.at("7").spares = 1;
  minutes(2);
  ASSERT_TRUE(desk_.is_open("relief/move"));
  const Report moved = desk_.open().at("relief/move").report;
  EXPECT_EQ(moved.action, Action::restart);
  EXPECT_EQ(moved.part, Part::memory);
  EXPECT_EQ(desk_.problems().size(), 1u) << "the next launch avoids the node";
  desk_.over("host/memory_high");
  minutes(1);
  EXPECT_TRUE(desk_.problems().empty());
}

TEST_F(AdviceTest, WhatConcernsAJobIsToldToItsRanksAlone) {
  advice_.listen(2, "8");
  advice_.tell_job({{"VERB", "advise"}, {"JOB", "8"}, {"ADVICE", "save"}});
  EXPECT_EQ(sent_, "2:save ");
  job_with_spares(1);
  context_.registry.at("7").restarts = 2;
  advice_.tell_job({{"VERB", "advise"}, {"JOB", "7"}, {"RESTARTS", "2"}, {"ADVICE", "end"}, {"END", "1000"}});
  EXPECT_EQ(sent_, "2:save 1:end ");
  advice_.listen(3, "7");
  EXPECT_EQ(sent_, "2:save 1:end 3:end ") << "who comes later is told, too";
  advice_.listen(3, "7");
  context_.registry.at("7").restarts = 3;
  advice_.listen(4, "7");
  EXPECT_EQ(sent_, "2:save 1:end 3:end ") << "what was said of the run before";
  context_.registry.at("7").restarts = 2;
  advice_.job_ended("7");
  advice_.listen(5, "7");
  EXPECT_EQ(sent_, "2:save 1:end 3:end ");
}

TEST_F(AdviceTest, APredictionAsksForOneCheckpoint) {
  desk_.report("a", report("temperature", Severity::error, Action::alert));
  EXPECT_EQ(sent_, "");
  desk_.report("b", report("predict_rate", Severity::warning, Action::checkpoint));
  desk_.report("c", report("predict_repeats", Severity::warning, Action::checkpoint));
  EXPECT_EQ(sent_, "1:save ");
}

}  // namespace
}  // namespace mm::agent
