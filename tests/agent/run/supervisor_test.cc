// SPDX-License-Identifier: Apache-2.0
// The run loop against a fake srun and a fake agent: what is launched where, what is killed, what is told and written.
#include "agent/run/supervisor.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/agent/run/fakes.h"

namespace mm::run {
namespace {

using testing::Test;

#define EXPECT_HAS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << text

// Ends when the process that started it kills it; says its process id first.
constexpr const char* train_for_ever = "echo $$ >\"$STAGE/pid\"; exec sleep 1000";

KeyValues incident(const std::string& node, int id = 1) {
  return {{"EVENT", "incident"}, {"JOB", "77"},         {"NODE", node},      {"ID", std::to_string(id)},  {"CLASS", "nic"},
          {"DEVICE", "eth1"},    {"SEVERITY", "fatal"}, {"ACTION", "drain"}, {"EVIDENCE", "carrier lost"}};
}
KeyValues resumed(int step_id, int step) {
  return {{"EVENT", "progress"}, {"JOB", "77"}, {"NODE", "n1"},     {"STEP_ID", std::to_string(step_id)},
          {"RANK", "0"},         {"LOSS", ""},  {"PHASE", "train"}, {"STEP", std::to_string(step)}};
}
KeyValues progress(int step_id, int step) {
  KeyValues event = resumed(step_id, step);
  event["LOSS"] = "1.5";
  return event;
}
KeyValues exited(int step_id, int rank, int status) {
  return {{"EVENT", "exit"},
          {"JOB", "77"},
          {"NODE", "n" + std::to_string(rank + 1)},
          {"STEP", std::to_string(step_id)},
          {"RANK", std::to_string(rank)},
          {"STATUS", std::to_string(status)}};
}

struct RunLoop : Test {
  Stage stage;
  void SetUp() override { stage.open_agent(); }
  bool launched(int k) {
    return stage.serve([&] { return stage.launched(k) && stage.watched; });
  }
};

TEST_F(RunLoop, ALaunchWithoutFault) {
  Plan plan = plan_of(stage, 3, 1);
  plan.tasks_per_node = 2;
  plan.cpus_per_task = 4;
  stage.start(plan);
  EXPECT_EQ(stage.wait(), 0) << stage.messages();
  EXPECT_EQ(stage.argv(0),
            "--overlap --nodes=3 --ntasks=6 --ntasks-per-node=2 --kill-on-bad-exit=0 --quit-on-interrupt --cpus-per-task=4 "
            "--mpi=pmix train --fast\n");
  EXPECT_EQ(stage.lines_of("hosts.0"), std::vector<std::string>{"n1 n1 n2 n2 n3 n3 "});
  EXPECT_HAS(stage.environment(0), "\nMM_NODES=n[1-3]\n");
  EXPECT_HAS(stage.environment(0), "\nSLURM_PMIX_FENCE=ring\n");
  EXPECT_HAS(stage.environment(0), "\nMM_RESTARTS=0\n");
  EXPECT_HAS(stage.messages(), "finished: 0 restarts");
}

TEST_F(RunLoop, WithoutThePluginTheNodesComeFromNodelist) {
  Plan plan = plan_of(stage, 2, 0);
  plan.plugin = false;
  plan.srun_arguments = {"--mpi=none"};
  stage.start(plan);
  EXPECT_EQ(stage.wait(), 0) << stage.messages();
  EXPECT_HAS(stage.argv(0), " --nodelist=n[1-2] --mpi=none train --fast\n");
  EXPECT_EQ(stage.environment(0).find("SLURM_HOSTFILE"), std::string::npos);
}

TEST_F(RunLoop, ANodeThatIsHurtIsReplacedInItsSlot) {
  stage.behave(0, train_for_ever);
  stage.behave(1, train_for_ever);
  stage.start(plan_of(stage, 4, 1));
  ASSERT_TRUE(launched(0)) << stage.messages();
  stage.emit(progress(5, 41));
  stage.emit(incident("n2"));
  stage.emit(incident("n2"));  // told twice
  ASSERT_TRUE(launched(1)) << stage.messages();
  EXPECT_EQ(stage.lines_of("hosts.1"), std::vector<std::string>{"n1 n5 n3 n4 "});
  ASSERT_EQ(stage.kills.size(), 1U);
  EXPECT_EQ(get(stage.kills[0], "STEP"), "5");
  EXPECT_EQ(get(stage.kills[0], "JOB"), "77");
  stage.emit(exited(5, 1, SIGKILL));  // of the old step: means nothing
  stage.emit(progress(5, 42));        // as well
  stage.emit(progress(6, 0));         // not all ranks have spoken
  stage.emit(resumed(6, 37));         // no training step yet
  stage.emit(progress(6, 38));
  ASSERT_TRUE(stage.serve([&] { return !stage.lines_of("run/incidents.jsonl").empty(); }));
  const auto line = nlohmann::json::parse(stage.lines_of("run/incidents.jsonl")[0]);
  EXPECT_EQ(line["event"], "restart");
  EXPECT_EQ(line["cause"], "nic");
  EXPECT_EQ(line["node"], "n2");
  EXPECT_EQ(line["evidence"], "carrier lost");
  EXPECT_EQ(line["step_before"], 41);
  EXPECT_EQ(line["step_after"], 38);
  EXPECT_EQ(line["lost_steps"], 4);
  EXPECT_GT(line["lost_seconds"], 0);
  EXPECT_HAS(stage.messages(), "n2 lost its training link eth1 (carrier lost); restarting without n2, step 41 -> ");
  EXPECT_HAS(stage.messages(), "at step 38 (it was at 41)");

  // The spare is used up: the next fault is the end, and says what is missing.
  stage.emit(incident("n3", 2));
  EXPECT_EQ(stage.wait(), 75) << stage.messages();
  EXPECT_HAS(stage.messages(), "too few nodes are left");
  EXPECT_FALSE(stage.launched(2));
}

TEST_F(RunLoop, ADeadSpareIsNotChosen) {
  stage.behave(0, train_for_ever);
  stage.start(plan_of(stage, 2, 2));
  ASSERT_TRUE(launched(0)) << stage.messages();
  stage.emit(incident("n3"));
  stage.emit(incident("n1", 2));
  EXPECT_EQ(stage.wait(), 0) << stage.messages();
  EXPECT_EQ(stage.lines_of("hosts.1"), std::vector<std::string>{"n4 n2 "});
  EXPECT_HAS(stage.messages(), "spare n3 lost its training link");
}

TEST_F(RunLoop, ARankThatIsKilledRestartsInPlaceAndStepsRefillTheBudget) {
  Plan plan = plan_of(stage, 2, 0);
  plan.max_restarts = 1;
  for (int k = 0; k < 4; ++k) stage.behave(k, train_for_ever);
  stage.start(plan);
  for (int k = 0; k < 3; ++k) {
    ASSERT_TRUE(launched(k)) << stage.messages();
    if (k < 2) stage.emit(progress(5 + k, 10 + k));
    stage.emit(exited(5 + k, 1, SIGKILL));
  }
  EXPECT_EQ(stage.wait(), 137) << stage.messages();
  EXPECT_EQ(stage.lines_of("hosts.2"), std::vector<std::string>{"n1 n2 "});
  EXPECT_HAS(stage.messages(), "rank 1 on n2 was killed by signal 9 (Killed); restarting in place");
  EXPECT_HAS(stage.messages(), "no more are allowed (max_restarts)");
  EXPECT_FALSE(stage.launched(3));
}

TEST_F(RunLoop, AUsersErrorIsPassedOnAndPeersAreKilled) {
  stage.behave(0, train_for_ever);
  stage.start(plan_of(stage, 2, 1));
  ASSERT_TRUE(launched(0)) << stage.messages();
  stage.emit(exited(5, 0, 3 << 8));
  EXPECT_EQ(stage.wait(), 3) << stage.messages();
  EXPECT_EQ(stage.kills.size(), 1U);
  EXPECT_FALSE(stage.launched(1));
  EXPECT_HAS(stage.messages(),
             "rank 0 on n1 exited with status 3 (data, or no checkpoint that loads); a restart would not help");
}

TEST_F(RunLoop, TheExitOfAnotherStepMeansNothing) {
  stage.behave(0, "until [ -e \"$STAGE/go\" ]; do sleep 0.01; done; exit 0");
  stage.start(plan_of(stage, 2, 0));
  ASSERT_TRUE(launched(0)) << stage.messages();
  stage.emit(exited(9, 0, 1 << 8));
  std::ofstream(stage.folder + "/go") << 1;
  EXPECT_EQ(stage.wait(), 0) << stage.messages();
}

TEST_F(RunLoop, AHang) {
  stage.behave(0, train_for_ever);
  stage.start(plan_of(stage, 2, 1));
  ASSERT_TRUE(launched(0)) << stage.messages();
  stage.emit({{"EVENT", "hang"}, {"JOB", "77"}, {"NODE", "n2"}, {"STEP_ID", "5"}, {"RANK", "1"}, {"SECONDS", "12.5"}});
  stage.emit({{"EVENT", "incident"},
              {"JOB", "77"},
              {"NODE", "n2"},
              {"ID", "3"},
              {"CLASS", "app"},
              {"ACTION", "restart"},
              {"STEP", "5"},
              {"RANK", "1"},
              {"EVIDENCE", "no progress for 12.5 s"}});
  EXPECT_EQ(stage.wait(), 0) << stage.messages();
  EXPECT_EQ(stage.lines_of("hosts.1"), std::vector<std::string>{"n1 n2 "});
  EXPECT_HAS(stage.messages(), "rank 1 on n2 made no progress for 12 s; restarting in place");
  EXPECT_FALSE(stage.launched(2));
}

TEST_F(RunLoop, ANodeThatAProbeCallsBadIsAvoided) {
  stage.bad = {"n1"};
  stage.start(plan_of(stage, 2, 1));
  EXPECT_EQ(stage.wait(), 0) << stage.messages();
  EXPECT_EQ(stage.lines_of("hosts.0"), std::vector<std::string>{"n3 n2 "});
  EXPECT_HAS(stage.messages(), "n1 is avoided (slurmd does not answer); n3 takes its ranks");
}

TEST_F(RunLoop, WaitsForANodeThatComesBack) {
  stage.bad = {"n2"};
  stage.fake("scontrol", "echo 'JobId=77 JobState=RUNNING Reason=None Requeue=1 Restarts=0 BatchFlag=1'");
  stage.start(plan_of(stage, 2, 0));
  ASSERT_TRUE(stage.serve([&] { return stage.messages().find("waiting up to") != std::string::npos; }));
  stage.bad = {};
  EXPECT_EQ(stage.wait(), 0) << stage.messages();
}

// A step of this run would land in the new one.
TEST_F(RunLoop, ANodeThatWasCutOffDoesNotDisturbTheJobsNextRun) {
  stage.bad = {"n1", "n2", "n3"};
  stage.fake("scontrol", "echo 'JobId=77 JobState=RUNNING Reason=None Requeue=1 Restarts=1 BatchFlag=1'");
  stage.start(plan_of(stage, 2, 1));
  ASSERT_TRUE(stage.serve([&] { return stage.messages().find("waiting up to") != std::string::npos; }));
  stage.bad = {};
  EXPECT_EQ(stage.wait(), 75) << stage.messages();
  EXPECT_FALSE(stage.launched(0));
  EXPECT_TRUE(stage.lines_of("run/incidents.jsonl").empty());
}

TEST_F(RunLoop, TheAgentComesBack) {
  stage.behave(0, train_for_ever);
  stage.start(plan_of(stage, 2, 0));
  ASSERT_TRUE(launched(0)) << stage.messages();
  stage.close_agent();
  ASSERT_TRUE(stage.serve([&] { return stage.messages().find("the agent of this node has gone") != std::string::npos; }));
  stage.open_agent();
  ASSERT_TRUE(stage.serve([&] { return stage.watched; }));
  stage.emit(exited(5, 0, SIGSEGV));
  EXPECT_EQ(stage.wait(), 0) << stage.messages();
  EXPECT_EQ(stage.kills.size(), 1U);
}

TEST_F(RunLoop, WithoutAnAgentSrunTellsTheDeath) {
  stage.close_agent();
  stage.behave(0, "echo 'srun: error: n2: task 1: Killed' >&2; exec sleep 1000");
  stage.start(plan_of(stage, 2, 0));
  EXPECT_EQ(stage.wait(), 0) << stage.messages();
  EXPECT_HAS(stage.messages(), "no agent watches this job");
  EXPECT_HAS(stage.messages(), "rank 1 on n2 was killed by signal 9 (Killed); restarting in place");
}

TEST_F(RunLoop, ALateAnswerToKillDoesNotStopIt) {
  stage.answer_kill = false;
  stage.behave(0, train_for_ever);
  stage.start(plan_of(stage, 2, 1));
  ASSERT_TRUE(launched(0)) << stage.messages();
  stage.emit(incident("n1"));
  EXPECT_EQ(stage.wait(), 0) << stage.messages();
  EXPECT_EQ(stage.lines_of("hosts.1"), std::vector<std::string>{"n3 n2 "});
}

TEST_F(RunLoop, TheControllerIsWaitedFor) {
  stage.behave(0,
               "echo 'srun: error: Unable to confirm allocation for job 77: Unable to contact slurm controller (connect "
               "failure)' >&2; exit 1");
  Plan plan = plan_of(stage, 2, 0);
  plan.max_restarts = 0;
  stage.start(plan);
  EXPECT_EQ(stage.wait(), 0) << stage.messages();
  EXPECT_HAS(stage.messages(), "Slurm's controller does not answer");
  EXPECT_HAS(stage.messages(), "finished: 0 restarts");
}

TEST_F(RunLoop, SignalsAreForwardedAndNoRestartFollows) {
  // scancel is how a signal reaches the ranks; the step id is known from the plugin.
  stage.fake("scancel", "echo \"$*\" >\"$STAGE/scancel\"; kill -TERM $(cat \"$STAGE/pid\")");
  stage.behave(0, "trap 'exit 75' TERM; echo $$ >\"$STAGE/pid\"; while :; do sleep 0.01; done");
  stage.start(plan_of(stage, 2, 0));
  ASSERT_TRUE(launched(0) && stage.serve([&] { return !stage.lines_of("pid").empty(); }));
  stage.signal(SIGTERM);
  EXPECT_EQ(stage.wait(), 75) << stage.messages();
  EXPECT_EQ(stage.lines_of("scancel"), std::vector<std::string>{"--signal=15 77.5"});
  EXPECT_FALSE(stage.launched(1));
}

KeyValues saved(int step_id, int checkpoint) {
  KeyValues event = progress(step_id, 50);
  event["CHECKPOINT"] = std::to_string(checkpoint);
  return event;
}

TEST_F(RunLoop, ASlowNodeIsLeftAtTheCheckpointThatItAsksFor) {
  stage.behave(0, train_for_ever);
  stage.start(plan_of(stage, 2, 1));
  ASSERT_TRUE(launched(0)) << stage.messages();
  stage.emit(saved(5, 40));
  KeyValues slow = incident("n2");
  slow["CLASS"] = "node";
  slow["CODE"] = "straggler";
  slow["ACTION"] = "restart";
  stage.emit(slow);
  ASSERT_TRUE(stage.serve([&] { return stage.asked("save") == 1; })) << stage.messages();
  EXPECT_TRUE(stage.kills.empty());
  stage.emit(saved(5, 50));
  EXPECT_EQ(stage.wait(), 0) << stage.messages();
  EXPECT_EQ(stage.lines_of("hosts.1"), std::vector<std::string>{"n1 n3 "});
  EXPECT_HAS(stage.messages(), "n2 is slow (carrier lost); the ranks are asked to save");
  EXPECT_EQ(stage.asked("save"), 1);
}

TEST_F(RunLoop, WithoutASpareGoesOnSmallerInTheLayoutOfTheJobFile) {
  stage.behave(0, train_for_ever);
  stage.bad = {};
  Plan plan = plan_of(stage, 3, 0);
  plan.fits = {{2, "tp=2,cp=1,pp=1"}, {1, ""}};
  plan.hang_timeout = "9";
  plan.command = {"/usr/bin/mm-trainer", "job.toml"};
  stage.start(plan);
  ASSERT_TRUE(launched(0)) << stage.messages();
  stage.bad = {"n2"};
  stage.emit(incident("n2"));
  EXPECT_EQ(stage.wait(), 0) << stage.messages();
  EXPECT_EQ(stage.lines_of("hosts.1"), std::vector<std::string>{"n1 n3 "});
  EXPECT_HAS(stage.argv(1), "--nodes=2 --ntasks=2");
  EXPECT_HAS(stage.argv(1), "--mm-train=tp=2,cp=1,pp=1,hang_timeout=9");
  EXPECT_HAS(stage.argv(1), "job.toml --set parallel.tp=2 --set parallel.cp=1 --set parallel.pp=1");
  EXPECT_HAS(stage.messages(), "going on with 2 nodes in place of 3: tp=2,cp=1,pp=1");
}

TEST_F(RunLoop, TooFewNodesAreLeftAndTheJobIsRequeuedWithoutTheBadOnes) {
  stage.behave(0, train_for_ever);
  stage.start(plan_of(stage, 2, 0));
  ASSERT_TRUE(launched(0)) << stage.messages();
  stage.bad = {"n2"};
  stage.emit(incident("n2"));
  EXPECT_EQ(stage.wait(), 75) << stage.messages();
  ASSERT_EQ(stage.asked("requeue"), 1);
  EXPECT_EQ(get(stage.requests.back(), "EXCLUDE"), "n2");
  EXPECT_HAS(stage.messages(), "the agents requeue the job without n2");
}

TEST_F(RunLoop, RanksThatHaveSavedAreRequeued) {
  stage.behave(0, "exit 75");
  stage.start(plan_of(stage, 2, 0));
  EXPECT_EQ(stage.wait(), 75) << stage.messages();
  EXPECT_EQ(stage.asked("requeue"), 1);
  const auto lines = stage.lines_of("run/incidents.jsonl");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(nlohmann::json::parse(lines[0])["event"], "requeue");
}

TEST_F(RunLoop, RanksThatHaveSavedAreNotRequeuedWhereTheJobFileSaysNo) {
  stage.behave(0, "exit 75");
  Plan plan = plan_of(stage, 2, 0);
  plan.may_requeue = false;
  stage.start(plan);
  EXPECT_EQ(stage.wait(), 75) << stage.messages();
  EXPECT_EQ(stage.asked("requeue"), 0);
}

// Each of the runs before saved without a step: the budget is used up.
TEST_F(RunLoop, RequeuesWithoutAStepComeToAnEnd) {
  std::filesystem::create_directories(stage.folder + "/run");
  std::ofstream(stage.folder + "/run/incidents.jsonl") << "{\"event\":\"restart\",\"step_after\":3}\n{\"event\":\"requeue\"}\n{\"event\":\"requeue\"}\n";
  Plan plan = plan_of(stage, 2, 0);
  plan.requeues = 2;
  plan.max_restarts = 2;
  stage.behave(0, "exit 75");
  stage.start(plan);
  EXPECT_EQ(stage.wait(), 75) << stage.messages();
  EXPECT_EQ(stage.asked("requeue"), 0);
  EXPECT_HAS(stage.messages(), "giving up: the ranks have saved, and ask for a requeue; 2 restarts without a training step");
}

TEST_F(RunLoop, TheLineOfARecoverySaysWhereTheTimeWent) {
  stage.behave(0, train_for_ever);
  stage.behave(1, "until [ -e \"$STAGE/go\" ]; do sleep 0.01; done; exit 0");
  stage.start(plan_of(stage, 2, 1));
  ASSERT_TRUE(launched(0)) << stage.messages();
  stage.emit(progress(5, 10));
  stage.emit(incident("n2"));
  ASSERT_TRUE(stage.serve([&] { return stage.launched(1); })) << stage.messages();
  KeyValues loading = resumed(6, 0);
  loading["PHASE"] = "load";
  stage.emit(loading);
  stage.emit(resumed(6, 9));
  stage.emit(progress(6, 11));
  ASSERT_TRUE(stage.serve([&] { return stage.messages().find("training again") != std::string::npos; })) << stage.messages();
  std::ofstream(stage.folder + "/go") << 1;
  EXPECT_EQ(stage.wait(), 0) << stage.messages();
  const auto line = nlohmann::ordered_json::parse(stage.lines_of("run/incidents.jsonl").at(0));
  double sum = 0;
  std::string names;
  for (const auto& [name, seconds] : line["parts"].items()) {
    sum += seconds.get<double>();
    names += name + " ";
  }
  EXPECT_EQ(names, "detect decide stop start load step ");
  EXPECT_NEAR(sum, line["lost_seconds"].get<double>(), 0.01);
}

// On a node that is cut off, srun's child would tell slurmctld hours later to end a step that is another one by then.
TEST_F(RunLoop, WhatSrunLeavesBehindEndsSoon) {
  stage.behave(0, "sleep 1000 & echo $! >\"$STAGE/child\"; echo $$ >\"$STAGE/pid\"; wait");
  stage.behave(1, "while grep -qs '^State:.[^ZX]' /proc/$(cat \"$STAGE/child\")/status; do sleep 0.05; done; exit 0");
  stage.start(plan_of(stage, 2, 0));
  ASSERT_TRUE(launched(0) && stage.serve([&] { return !stage.lines_of("pid").empty(); })) << stage.messages();
  stage.emit(exited(5, 1, SIGKILL));
  EXPECT_EQ(stage.wait(), 0) << stage.messages();
}

TEST_F(RunLoop, JsonLines) {
  Plan plan = plan_of(stage, 1, 0);
  plan.json = true;
  stage.behave(0, "echo out; exit 0");
  stage.start(plan);
  EXPECT_EQ(stage.wait(), 0);
  const auto lines = stage.lines_of("output");
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(nlohmann::json::parse(lines[0])["event"], "launch");
  EXPECT_EQ(lines[1], "out");
  EXPECT_EQ(nlohmann::json::parse(lines[2])["event"], "end");
}

}  // namespace
}  // namespace mm::run
