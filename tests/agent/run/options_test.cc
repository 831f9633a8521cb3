// SPDX-License-Identifier: Apache-2.0
#include "agent/run/options.h"

#include <gtest/gtest.h>

#include <map>

#include "common/error.h"

namespace mm::run {
namespace {

using Map = std::map<std::string, std::string>;

Map job(Map more = {}) {
  Map m = {{"SLURM_JOB_ID", "77"}, {"SLURM_JOB_NODELIST", "n[1-5]"}, {"SLURM_NNODES", "5"}, {"MM_AGENT_SOCKET", "/s"}};
  for (const auto& [k, v] : more) m[k] = v;
  return m;
}

Plan plan(const Map& environment, const Options& options = {}, std::optional<int> spares_left = std::nullopt) {
  const auto lookup = [&](const char* name) -> const char* {
    const auto at = environment.find(name);
    return at == environment.end() ? nullptr : at->second.c_str();
  };
  return make_plan(options, lookup, [&](const Plan&) { return spares_left; });
}

std::string refusal(const Map& environment, const Options& options = {}) {
  try {
    plan(environment, options);
  } catch (const Error& e) {
    EXPECT_EQ(e.status, exit_status::usage);
    return e.what();
  }
  return "accepted";
}

TEST(Options, FromTheEnvironment) {
  const Plan p =
      plan(job({{"MM_TRAIN_SPEC", "spares=1,max_restarts=4"}, {"SLURM_NTASKS_PER_NODE", "2"}, {"SLURM_CPUS_PER_TASK", "3"}}));
  EXPECT_EQ(p.nodes, 4);
  EXPECT_EQ(p.spares, 1);
  EXPECT_EQ(p.tasks(), 8);
  EXPECT_EQ(p.cpus_per_task, 3);
  EXPECT_EQ(p.max_restarts, 4);
  EXPECT_TRUE(p.plugin);
  EXPECT_EQ(p.agent_socket, "/s");
  EXPECT_EQ(p.run_folder, "");
  EXPECT_FALSE(plan(job()).plugin);
  EXPECT_FALSE(plan(job({{"MM_TRAIN_SPEC", "off"}})).plugin);
  EXPECT_EQ(plan(job({{"SLURM_NTASKS", "10"}})).tasks_per_node, 2);
  EXPECT_EQ(plan(job()).tasks_per_node, 1);
}

TEST(Options, TheCommandLineIsStronger) {
  Options o;
  o.spares = 2;
  o.ntasks_per_node = 4;
  o.max_restarts = 0;
  const Plan p = plan(job({{"MM_TRAIN_SPEC", "spares=1"}, {"SLURM_NTASKS_PER_NODE", "2"}}), o);
  EXPECT_EQ(p.nodes, 3);
  EXPECT_EQ(p.tasks(), 12);
  EXPECT_EQ(p.max_restarts, 0);
  Options n;
  n.nodes = 2;
  EXPECT_EQ(plan(job({{"MM_TRAIN_SPEC", "spares=1"}}), n).spares, 3);
}

// A requeued job may have been started without its spares.
TEST(Options, AfterARequeue) {
  const Map fewer = job({{"MM_TRAIN_SPEC", "tp=4,spares=1"},
                         {"SLURM_RESTART_COUNT", "1"},
                         {"SLURM_JOB_NODELIST", "n[2-5]"},
                         {"SLURM_NNODES", "4"}});
  EXPECT_EQ(plan(fewer, {}, 0).nodes, 4);
  EXPECT_EQ(plan(fewer, {}, 0).requeues, 1);
  EXPECT_THROW(plan(fewer), Error);
  EXPECT_EQ(plan(job({{"SLURM_RESTART_COUNT", "0"}, {"MM_TRAIN_SPEC", "spares=1"}}), {}, 0).nodes, 4);
  EXPECT_EQ(
      plan(job({{"SLURM_RESTART_COUNT", "1"}, {"SLURM_NTASKS", "8"}, {"MM_TRAIN_SPEC", "spares=1"}}), {}, 1).tasks_per_node, 2);
}

// On fewer nodes: the most that fit, and on so many the layout that comes first.
TEST(Options, SmallerLayouts) {
  const auto fits = [](const char* spec) {
    std::string out;
    for (const Plan::Fit& f : plan(job({{"MM_TRAIN_SPEC", spec}})).fits) out += std::to_string(f.nodes) + ":" + f.layout + " ";
    return out;
  };
  EXPECT_EQ(fits("pp=2,spares=1"), "");
  EXPECT_EQ(fits("pp=2,spares=1,layouts=same"), "2: ");
  EXPECT_EQ(fits("tp=2,spares=1,layouts=tp=1"), "3:tp=1,cp=1,pp=1 2:tp=1,cp=1,pp=1 1:tp=1,cp=1,pp=1 ");
}

// A task of a job array is a job like any other, under its own number.
TEST(Options, JobArrays) {
  EXPECT_EQ(plan(job({{"SLURM_ARRAY_JOB_ID", "70"}, {"SLURM_ARRAY_TASK_ID", "3"}})).job_id, "77");
}

TEST(Options, RequeueAsTheJobFileSays) {
  EXPECT_TRUE(plan(job()).may_requeue);
  EXPECT_FALSE(plan(job({{"MM_TRAIN_SPEC", "requeue=off"}})).may_requeue);
}

TEST(Options, Refusals) {
  EXPECT_NE(refusal({}).find("not inside a Slurm job"), std::string::npos);
  EXPECT_NE(refusal(job({{"SLURM_HET_SIZE", "2"}})).find("heterogeneous"), std::string::npos);
  EXPECT_NE(refusal(job({{"SLURM_NTASKS", "7"}})).find("7 tasks on 5 nodes"), std::string::npos);
  EXPECT_NE(refusal(job({{"MM_TRAIN_SPEC", "tp=3,spares=1"}})).find("4 tasks"), std::string::npos);
  EXPECT_NE(refusal(job({{"SLURM_NTASKS_PER_NODE", "x"}})).find("SLURM_NTASKS_PER_NODE"), std::string::npos);
  Options many;
  many.spares = 5;
  EXPECT_NE(refusal(job(), many).find("no node of the 5"), std::string::npos);
  Options both;
  both.nodes = 4;
  both.spares = 2;
  EXPECT_NE(refusal(job(), both).find("more than the 5"), std::string::npos);
}

}  // namespace
}  // namespace mm::run
