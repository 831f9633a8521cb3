// SPDX-License-Identifier: Apache-2.0
#include "agent/run/srun_command.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace mm::run {
namespace {

using recovery::SrunFailure;

// Lines as srun 22.05 prints them.
TEST(SrunLines, EndsOfTasks) {
  const auto one = read_srun_line("srun: error: node3: task 2: Killed", "77").exits;
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].rank, 2);
  EXPECT_EQ(one[0].node, "node3");
  EXPECT_EQ(one[0].wait_status, SIGKILL);
  EXPECT_EQ(read_srun_line("srun: error: node3: task 3: Segmentation fault (core dumped)", "77").exits.at(0).wait_status,
            SIGSEGV);
  EXPECT_EQ(read_srun_line("srun: error: node2: task 1: Exited with exit code 3", "77").exits.at(0).wait_status, 3 << 8);
  const auto many = read_srun_line("srun: error: node[1-2]: tasks 0-1,3: Exited with exit code 76", "77").exits;
  ASSERT_EQ(many.size(), 3U);
  EXPECT_EQ(many[2].rank, 3);
  EXPECT_EQ(many[2].node, "");
}

TEST(SrunLines, FailuresOfSrunItself) {
  const auto failure = [](const char* line) { return read_srun_line(line, "77").failure; };
  EXPECT_EQ(
      failure("srun: error: Unable to confirm allocation for job 77: Unable to contact slurm controller (connect failure)"),
      SrunFailure::controller);
  EXPECT_EQ(failure("srun: error: Unable to create step for job 77: Socket timed out on send/recv operation"),
            SrunFailure::controller);
  EXPECT_EQ(failure("srun: error: Unable to create step for job 77: Job/step already completing or completed"),
            SrunFailure::refused);
  EXPECT_EQ(failure("srun: error: Unable to create step for job 77: Memory required by task is not available"),
            SrunFailure::not_now);
  EXPECT_EQ(failure("srun: error: Slurm job 77 has expired"), SrunFailure::refused);
  const SrunNews dead =
      read_srun_line("srun: error: Task launch for StepId=77.3 failed on node node4: Communication connection failure", "77");
  EXPECT_EQ(dead.failure, SrunFailure::launch);
  EXPECT_EQ(dead.node, "node4");
  EXPECT_EQ(dead.step, "3");
}

TEST(SrunLines, WhatRanksPrintMeansNothing) {
  for (const char* line :
       {"node3: task 2: Killed", "error: node3: task 2: Killed", "", "srun: error: node3: task 2: On fire",
        "srun: error: : task : Killed", "srun: error: node[: tasks [0: Killed", "srun: Force Terminated StepId=78.3"}) {
    const SrunNews news = read_srun_line(line, "77");
    EXPECT_TRUE(news.exits.empty()) << line;
    EXPECT_EQ(news.failure, SrunFailure::none) << line;
    EXPECT_FALSE(news.step) << line;
  }
  EXPECT_EQ(read_srun_line("srun: Force Terminated StepId=77.12", "77").step, "12");
}

TEST(SrunEnvironment, WhatTheUserSetStays) {
  const char* own[] = {"SLURM_PMIX_FENCE=tree", "MM_NODES=old", "SLURM_HOSTFILE=/x", "A=1", nullptr};
  const auto got = srun_environment(own, {"n2", "n1"}, 3, 9, std::nullopt);
  EXPECT_EQ(got,
            (std::vector<std::string>{"SLURM_PMIX_FENCE=tree", "A=1", "MM_NODES=n[2,1]", "MM_RESTARTS=3", "MM_RUN_STEP_FD=9"}));
}

}  // namespace
}  // namespace mm::run
