// SPDX-License-Identifier: Apache-2.0
// The policy as a table: evidence on the left, the action on the right.
#include "agent/recovery/policy.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/recovery/describe.h"
#include "agent/recovery/exits.h"
#include "agent/recovery/nodes.h"
#include "agent/recovery/pause.h"

namespace mm::recovery {
namespace {

using Kind = Action::Kind;

RankExit exited(int rank, int status) {
  return {rank, "n" + std::to_string(rank + 1), status << 8};
}
RankExit killed(int rank, int signal) {
  return {rank, "n" + std::to_string(rank + 1), signal};
}
Incident nic(const std::string& node) {
  return {"1", "nic", node, "eth1", "fatal", "drain", "carrier lost", -1};
}

struct Row {
  const char* what;
  Evidence evidence;
  Kind kind;
  int exit_status = 0;
  std::vector<std::string> exclude = {};
  std::string cause = {};
  int used = 0;
  bool stopping = false;
};

Evidence exits(std::vector<RankExit> list, int waited_ms = 10000, std::optional<int> srun = std::nullopt) {
  Evidence e;
  e.exits = std::move(list);
  e.waited_ms = waited_ms;
  e.srun_status = srun;
  return e;
}

Evidence incidents(std::vector<Incident> list, std::vector<RankExit> also = {}) {
  Evidence e = exits(std::move(also), 0);
  e.incidents = std::move(list);
  return e;
}

Evidence srun(int status, SrunFailure failure = SrunFailure::none, int waited_ms = 10000) {
  Evidence e = exits({}, waited_ms, status);
  e.srun_failure = failure;
  return e;
}

Evidence hang() {
  Evidence e;
  e.hangs.push_back({2, "n3", 31});
  return e;
}

Evidence unlaunched() {
  Evidence e = srun(1, SrunFailure::launch);
  e.unlaunched = {"n2"};
  return e;
}

const std::vector<Row>& table() {
  static const std::vector<Row> rows = {
      {"nothing yet", {}, Kind::proceed},
      {"some ranks are done", exits({exited(0, 0), exited(1, 0)}), Kind::proceed},
      {"all is well", exits({}, 0, 0), Kind::finished},
      {"all ranks done, srun cannot book it", exits({exited(0, 0), exited(1, 0), exited(2, 0), exited(3, 0)}, 0, 1),
       Kind::finished},

      {"configuration", exits({exited(1, 2)}, 0), Kind::give_up, 2, {}, "user"},
      {"data", exits({exited(1, 3)}, 0), Kind::give_up, 3, {}, "user"},
      {"numeric", exits({exited(1, 4)}, 0), Kind::give_up, 4, {}, "user"},
      {"a user's error explains 76 and signals",
       exits({exited(0, 76), killed(2, SIGABRT), exited(1, 3)}, 0),
       Kind::give_up,
       3,
       {},
       "user"},
      {"status 1 waits for hardware evidence", exits({exited(1, 1)}, 100), Kind::settle},
      {"status 1 without any", exits({exited(1, 1)}, 2000), Kind::give_up, 1, {}, "user"},
      {"status 1 with hardware evidence", incidents({nic("n2")}, {exited(1, 1)}), Kind::restart, 76, {"n2"}, "nic"},
      {"status 255 is a program's own", exits({exited(1, 255)}), Kind::give_up, 255, {}, "user"},

      {"SIGKILL, fresh", exits({killed(1, SIGKILL)}, 0), Kind::settle},
      {"SIGKILL", exits({killed(1, SIGKILL)}, 300), Kind::restart, 137, {}, "rank"},
      {"SIGSEGV under a shell", exits({exited(1, 139)}, 300), Kind::restart, 139, {}, "rank"},
      {"internal error", exits({exited(1, 70)}, 1000), Kind::restart, 70, {}, "rank"},
      {"a lost peer waits for the cause", exits({exited(1, 76)}, 1999), Kind::settle},
      {"a lost peer without cause", exits({exited(1, 76)}, 2000), Kind::restart, 76, {}, "peer"},
      {"an end that nobody saw", exits({{1, "n2", -1}}, 1999), Kind::settle},
      {"an end that nobody saw, for good", exits({{1, "n2", -1}}), Kind::restart, 70, {}, "rank"},
      {"an end that nobody saw, of a run that succeeds", exits({{1, "n2", -1}}, 0, 0), Kind::finished},
      {"a lost peer, explained by a death", exits({exited(1, 76), killed(2, SIGKILL)}, 300), Kind::restart, 137, {}, "rank"},
      {"a lost peer, explained by a node", incidents({nic("n3")}, {exited(1, 76)}), Kind::restart, 76, {"n3"}, "nic"},
      {"a death of a rank on a bad node", incidents({nic("n2")}, {killed(1, SIGKILL)}), Kind::restart, 76, {"n2"}, "nic"},
      {"two bad nodes cost one restart", incidents({nic("n2"), nic("n4"), nic("n2")}), Kind::restart, 76, {"n2", "n4"}, "nic"},
      {"a bad node that is not of the launch", incidents({nic("n9")}), Kind::proceed},
      {"an alert", incidents({{"3", "slurm", "n2", "", "warning", "alert", "slurmd does not answer", -1}}), Kind::proceed},
      {"agents will requeue", incidents({{"3", "node", "n1", "", "fatal", "requeue", "silent", -1}}), Kind::proceed},
      {"hang", hang(), Kind::restart, 76, {}, "hang"},
      {"hang told by its incident alone",
       incidents({{"4", "app", "n3", "", "error", "restart", "no progress", 2}}),
       Kind::restart,
       76,
       {},
       "hang"},

      {"saved, others still save", exits({exited(0, 75)}), Kind::proceed},
      {"saved", exits({exited(0, 75), exited(1, 75), exited(2, 75), exited(3, 75)}), Kind::requeue, 75, {}, "requeue"},
      {"saved, known from srun alone", srun(75), Kind::requeue, 75, {}, "requeue"},

      {"controller away", srun(1, SrunFailure::controller), Kind::hold},
      {"no room for the step yet", srun(1, SrunFailure::not_now), Kind::hold},
      {"refused", srun(1, SrunFailure::refused), Kind::give_up, 1, {}, "slurm"},
      {"not launched", unlaunched(), Kind::restart, 1, {"n2"}, "launch"},
      {"srun ended, exits are on their way", srun(1, SrunFailure::none, 0), Kind::settle},
      {"srun's status alone: a user's error", srun(1), Kind::give_up, 1, {}, "user"},
      {"srun's status alone: a death", srun(137), Kind::restart, 137, {}, "rank"},
      {"srun's status alone: a lost peer", srun(76), Kind::restart, 76, {}, "peer"},

      {"budget left", exits({killed(1, SIGKILL)}), Kind::restart, 137, {}, "rank", 2},
      {"budget spent: a death", exits({killed(1, SIGKILL)}), Kind::give_up, 137, {}, "rank", 3},
      {"budget spent: a bad node", incidents({nic("n2")}), Kind::give_up, 76, {"n2"}, "nic", 3},
      {"budget spent: a hang", hang(), Kind::give_up, 76, {}, "hang", 3},

      {"asked to end: a death is no fault", exits({killed(1, SIGTERM)}), Kind::proceed, 0, {}, "", 0, true},
      {"asked to end: saved", exits({exited(0, 75), killed(1, SIGTERM)}, 0, 143), Kind::requeue, 75, {}, "requeue", 0, true},
      {"asked to end: not saved", exits({killed(1, SIGTERM)}, 0, 143), Kind::finished, 143, {}, "", 0, true},
      {"asked to end: a bad node", incidents({nic("n2")}), Kind::proceed, 0, {}, "", 0, true},
  };
  return rows;
}

TEST(Policy, Table) {
  for (const Row& row : table()) {
    SCOPED_TRACE(row.what);
    const Action a = decide(row.evidence, {{"n1", "n2", "n3", "n4"}, 4, row.stopping}, {3, row.used});
    EXPECT_EQ(static_cast<int>(a.kind), static_cast<int>(row.kind)) << a.reason;
    if (row.kind == Kind::settle) {
      EXPECT_GT(a.wait_ms, 0);
    } else {
      EXPECT_EQ(a.exit_status, row.exit_status);
    }
    EXPECT_EQ(a.exclude, row.exclude);
    EXPECT_EQ(a.cause, row.cause);
  }
}

// Whatever the evidence, waiting comes to an end, the budget is kept, and only nodes of the launch are left out.
TEST(Policy, PropertiesOverAllPairsOfEvidence) {
  for (const Row& a : table())
    for (const Row& b : table()) {
      Evidence e = a.evidence;
      e.exits.insert(e.exits.end(), b.evidence.exits.begin(), b.evidence.exits.end());
      e.incidents.insert(e.incidents.end(), b.evidence.incidents.begin(), b.evidence.incidents.end());
      e.hangs.insert(e.hangs.end(), b.evidence.hangs.begin(), b.evidence.hangs.end());
      if (b.evidence.srun_status) e.srun_status = b.evidence.srun_status;
      e.waited_ms = 60000;
      const JobState job{{"n1", "n2", "n3", "n4"}, 4, false};
      SCOPED_TRACE(std::string(a.what) + " + " + b.what);
      const Action spent = decide(e, job, {3, 3}), fresh = decide(e, job, {3, 0});
      EXPECT_NE(static_cast<int>(fresh.kind), static_cast<int>(Kind::settle));
      EXPECT_NE(static_cast<int>(spent.kind), static_cast<int>(Kind::restart));
      if (e.srun_status) {
        EXPECT_NE(static_cast<int>(fresh.kind), static_cast<int>(Kind::proceed));
      }
      for (const std::string& n : fresh.exclude) EXPECT_NE(std::find(job.nodes.begin(), job.nodes.end(), n), job.nodes.end());
      if (fresh.kind == Kind::give_up) {
        EXPECT_FALSE(fresh.reason.empty());
      }
    }
}

JobState job_of(int spares, std::vector<int> fits = {}, bool requeues = true) {
  JobState job{{"n1", "n2", "n3", "n4"}, 4, false};
  job.spares = spares;
  job.fits = std::move(fits);
  job.requeues = requeues;
  return job;
}

TEST(Policy, WithoutASpareGoesOnSmallerWhereALayoutFits) {
  const Evidence one = incidents({nic("n2")}), two = incidents({nic("n2"), nic("n3")});
  EXPECT_EQ(decide(one, job_of(1, {2}), {3, 0}).kind, Kind::restart) << "a spare is better";
  const Action smaller = decide(one, job_of(0, {3, 2}), {3, 0});
  EXPECT_EQ(smaller.kind, Kind::smaller);
  EXPECT_EQ(smaller.nodes, 3);
  EXPECT_EQ(smaller.exclude, std::vector<std::string>{"n2"});
  EXPECT_EQ(decide(two, job_of(0, {3, 2}), {3, 0}).nodes, 2);
  EXPECT_EQ(decide(two, job_of(1, {3, 2}), {3, 0}).nodes, 3) << "one of the two has a spare";
  EXPECT_EQ(decide(one, job_of(0), {3, 0}).kind, Kind::restart) << "the launch will look whether others come back";
  EXPECT_EQ(decide(one, job_of(0, {3}), {3, 3}).kind, Kind::give_up) << "the budget holds here, too";
}

TEST(Policy, TooFewNodesForALaunch) {
  const auto shortage = [](int good, bool hopeless, double waited) {
    return Shortage{good, hopeless, "n2: slurmd is gone", {"n2"}, waited};
  };
  EXPECT_EQ(decide(shortage(3, false, 0), job_of(0, {3}), {3, 0}).kind, Kind::hold) << "they may come back";
  EXPECT_EQ(decide(shortage(3, false, 61), job_of(0, {3}), {3, 0}).kind, Kind::smaller);
  EXPECT_EQ(decide(shortage(3, true, 0), job_of(0, {3}), {3, 0}).nodes, 3) << "bad hardware is not waited for";
  EXPECT_EQ(decide(shortage(2, true, 0), job_of(0, {3, 2, 1}), {3, 0}).nodes, 2);
  const Action elsewhere = decide(shortage(2, true, 0), job_of(0, {3}), {3, 0});
  EXPECT_EQ(elsewhere.kind, Kind::requeue);
  EXPECT_EQ(elsewhere.exit_status, 75);
  EXPECT_EQ(elsewhere.exclude, std::vector<std::string>{"n2"});
  const Action off = decide(shortage(2, true, 0), job_of(0, {}, false), {3, 0});
  EXPECT_EQ(off.kind, Kind::give_up) << "the job file says no";
  EXPECT_EQ(off.exit_status, 75);
  EXPECT_EQ(decide(shortage(2, true, 0), job_of(0), {3, 3}).kind, Kind::give_up) << "requeues without a step come to an end";
}

TEST(Policy, ARequeueThatBringsNoStepComesToAnEnd) {
  const Evidence saved = exits({exited(0, 75), exited(1, 75), exited(2, 75), exited(3, 75)});
  EXPECT_EQ(decide(saved, job_of(0), {3, 2}).kind, Kind::requeue);
  const Action last = decide(saved, job_of(0), {3, 3});
  EXPECT_EQ(last.kind, Kind::give_up);
  EXPECT_NE(last.reason.find("max_restarts"), std::string::npos);
}

TEST(Policy, ASlowNodeIsLeftAtTheNextCheckpoint) {
  Incident slow{"9", "node", "n2", "", "error", "restart", "rank 1 works 2 s a step", 1, "straggler", 40};
  const Evidence e = incidents({slow});
  JobState job = job_of(1);
  job.checkpoint = 40;
  const Action ask = decide(e, job, {3, 0});
  EXPECT_EQ(ask.kind, Kind::checkpoint);
  EXPECT_NE(ask.reason.find("n2 is slow"), std::string::npos);
  job.asked_to_save = true;
  EXPECT_EQ(decide(e, job, {3, 0}).kind, Kind::proceed) << "asked once";
  job.checkpoint = 41;
  job.asked_to_save = false;
  const Action move = decide(e, job, {3, 0});
  EXPECT_EQ(move.kind, Kind::restart);
  EXPECT_EQ(move.exclude, std::vector<std::string>{"n2"});
  EXPECT_EQ(move.cause, "straggler");
  job.spares = 0;
  EXPECT_EQ(decide(e, job, {3, 0}).kind, Kind::proceed) << "nowhere to go";
}

TEST(Policy, AForetoldFailureAsksForACheckpointAndLeavesTheNodeToTheNextLaunch) {
  const Evidence e = incidents({{"9", "gpu", "n2", "", "warning", "checkpoint", "row remaps are rising", -1, "predict_rate", 40}});
  JobState job = job_of(1);
  job.checkpoint = 40;
  EXPECT_EQ(decide(e, job, {3, 0}).kind, Kind::checkpoint);
  job.checkpoint = 41;
  EXPECT_EQ(decide(e, job, {3, 0}).kind, Kind::proceed);
}

// Same end, same step, no hardware evidence, no progress: the third time it is the program.
TEST(Policy, WhatFailsAlikeThreeTimesIsTheUsersError) {
  JobState job = job_of(1);
  job.step = 7;
  const auto after = [&](const RankExit& how, const History& before) { return decide(exits({how}), job, {10, static_cast<int>(before.size())}, before); };
  const End segv{SIGSEGV, 7}, internal{70 << 8, 7};
  EXPECT_EQ(after(killed(1, SIGSEGV), {}).kind, Kind::restart);
  EXPECT_EQ(after(killed(1, SIGSEGV), {segv}).kind, Kind::restart);
  const Action end = after(killed(1, SIGSEGV), {segv, segv});
  EXPECT_EQ(end.kind, Kind::give_up);
  EXPECT_EQ(end.cause, "user");
  EXPECT_EQ(end.exit_status, 128 + SIGSEGV);
  EXPECT_NE(end.reason.find("third time at the same step (after 7)"), std::string::npos) << end.reason;
  EXPECT_EQ(after(killed(2, SIGSEGV), {segv, segv}).kind, Kind::give_up) << "whichever rank";
  EXPECT_EQ(after(exited(1, 70), {internal, internal}).kind, Kind::give_up);
  EXPECT_EQ(after(exited(1, 70), {segv, internal}).kind, Kind::restart) << "not alike";
  EXPECT_EQ(after(killed(1, SIGSEGV), {{SIGSEGV, 6}, segv}).kind, Kind::restart) << "not at the same step";
  EXPECT_EQ(after(killed(1, SIGKILL), {{SIGKILL, 7}, {SIGKILL, 7}}).kind, Kind::restart) << "only others send it";
  EXPECT_EQ(after(exited(1, 76), {{76 << 8, 7}, {76 << 8, 7}}).kind, Kind::restart) << "a peer was lost";
  Evidence hardware = incidents({nic("n2")}, {killed(1, SIGSEGV)});
  EXPECT_EQ(decide(hardware, job, {10, 2}, {segv, segv}).kind, Kind::restart) << "hardware explains it";
  EXPECT_FALSE(end_of(hardware, 7));
  EXPECT_EQ(end_of(exits({killed(1, SIGSEGV)}), 7)->step, 7);
  EXPECT_FALSE(end_of(hang(), 7));
}

TEST(Pause, GrowsWithFruitlessRestartsAndDiffersBetweenJobs) {
  EXPECT_EQ(pause_before_restart(0, 1), 0);
  EXPECT_EQ(pause_before_restart(1, 1), 0);
  std::set<int> different;
  for (uint64_t seed = 0; seed < 100; ++seed)
    for (int n = 2; n < 40; ++n) {
      const int whole = std::min(60'000, 1000 << std::min(n - 2, 6)), ms = pause_before_restart(n, seed);
      EXPECT_GE(ms, whole / 2);
      EXPECT_LE(ms, whole);
      EXPECT_EQ(ms, pause_before_restart(n, seed));
      if (n == 3) different.insert(ms);
    }
  EXPECT_GT(different.size(), 80U);
  EXPECT_GT(decide(exits({killed(1, SIGKILL)}), job_of(1), {10, 5, 1}).wait_ms, 0);
  EXPECT_EQ(decide(exits({killed(1, SIGKILL)}), job_of(1), {10, 1, 1}).wait_ms, 0);
}

TEST(Describe, Sentences) {
  EXPECT_EQ(describe(nic("node3")), "node3 lost its training link eth1 (carrier lost)");
  EXPECT_EQ(describe(killed(2, SIGKILL)), "rank 2 on n3 was killed by signal 9 (Killed)");
  EXPECT_EQ(describe(exited(0, 3)), "rank 0 on n1 exited with status 3 (data, or no checkpoint that loads)");
  EXPECT_EQ(describe(Hang{2, "n3", 31.2}), "rank 2 on n3 made no progress for 31 s");
}

TEST(Exits, ShellStatusesOfSignals) {
  EXPECT_EQ(shell_status(SIGKILL), 137);
  EXPECT_EQ(shell_status(3 << 8), 3);
  EXPECT_EQ(shell_status(137 << 8), 137);
  EXPECT_EQ(static_cast<int>(kind_of(ending(137 << 8))), static_cast<int>(ExitKind::signal));
  EXPECT_EQ(static_cast<int>(kind_of(ending(255 << 8))), static_cast<int>(ExitKind::maybe_user_error));
}

TEST(Nodes, SlotsKeepTheirNodes) {
  const std::vector<std::string> all = {"a", "b", "c", "d", "e", "f"};
  const auto without = [](std::vector<std::string> bad) {
    return [bad](const std::string& n) { return std::find(bad.begin(), bad.end(), n) == bad.end(); };
  };
  EXPECT_EQ(choose_nodes({"a", "b", "c"}, all, without({})).nodes, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(choose_nodes({"a", "b", "c"}, all, without({"b", "d"})).nodes, (std::vector<std::string>{"a", "e", "c"}));
  EXPECT_EQ(choose_nodes({"a", "e", "c"}, all, without({"a", "d"})).nodes, (std::vector<std::string>{"b", "e", "c"}));
  const NodeChoice none = choose_nodes({"a", "b", "c"}, all, without({"a", "b", "d", "e"}));
  EXPECT_TRUE(none.nodes.empty());
  EXPECT_EQ(none.missing, (std::vector<std::string>{"b"}));
}

}  // namespace
}  // namespace mm::recovery
