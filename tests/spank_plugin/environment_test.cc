// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/environment.h"

#include <gtest/gtest.h>

#include <set>

#include "common/layout.h"

namespace mm::spank {
namespace {

TaskFacts facts(int rank) {
  TaskFacts f;
  f.job_id = 7;
  f.rank = rank;
  f.local_rank = rank % 2;
  f.tasks = 8;
  f.local_tasks = 2;
  f.tp = 2;
  f.pp = 2;
  f.node = "n" + std::to_string(rank / 2);
  f.nodes = {"n0", "n1", "n2", "n3"};
  f.agent_socket = "/run/agent.sock";
  return f;
}

TEST(TaskEnvironment, IsTheLayoutOfEveryRank) {
  const Layout layout{2, 1, 2, 2};
  for (int rank = 0; rank < 8; ++rank) {
    const auto v = task_environment(facts(rank)).values;
    Coordinates c;
    c.tp = std::stoi(v.at("MM_TP_RANK"));
    c.cp = std::stoi(v.at("MM_CP_RANK"));
    c.dp = std::stoi(v.at("MM_DP_RANK"));
    c.pp = std::stoi(v.at("MM_PP_RANK"));
    EXPECT_EQ(layout.rank(c), rank);
    EXPECT_EQ(v.at("RANK"), std::to_string(rank));
    EXPECT_EQ(v.at("LOCAL_RANK"), std::to_string(rank % 2));
    EXPECT_EQ(v.at("WORLD_SIZE"), "8");
    EXPECT_EQ(v.at("LOCAL_WORLD_SIZE"), "2");
    EXPECT_EQ(v.at("NODE_RANK"), std::to_string(rank / 2));
    EXPECT_EQ(v.at("MASTER_ADDR"), "n0");
    EXPECT_EQ(v.at("MM_AGENT_SOCKET"), "/run/agent.sock");
    EXPECT_EQ(v.count("CUDA_DEVICE_ORDER") + v.count("NCCL_SOCKET_IFNAME") + v.count("OMPI_MCA_mpi_yield_when_idle"), 0U);
  }
}

TEST(TaskEnvironment, OrderOfNodesDecidesMasterAndNodeRank) {
  TaskFacts f = facts(0);
  f.nodes = {"n3", "n0"};
  EXPECT_EQ(task_environment(f).values.at("MASTER_ADDR"), "n3");
  EXPECT_EQ(task_environment(f).values.at("NODE_RANK"), "1");
  f.master = "10.0.0.3";
  EXPECT_EQ(task_environment(f).values.at("MASTER_ADDR"), "10.0.0.3");
  f.nodes.clear();
  f.master.clear();
  EXPECT_EQ(task_environment(f).values.count("MASTER_ADDR"), 0U);
}

TEST(TaskEnvironment, AStepThatDoesNotFitTheLayoutHasNoPlaceInIt) {
  TaskFacts f = facts(0);
  f.tasks = 1;
  const auto v = task_environment(f).values;
  EXPECT_EQ(v.count("MM_TP_RANK"), 0U);
  EXPECT_EQ(v.at("WORLD_SIZE"), "1");
}

TEST(TaskEnvironment, Gpus) {
  TaskFacts f = facts(1);
  f.visible_gpus = "0,1,2,3";
  f.step_gpus = "4,5,6,7";
  f.local_rank = 5;
  TaskEnvironment e = task_environment(f);
  EXPECT_EQ(e.values.at("MM_LOCAL_DEVICE"), "1");
  EXPECT_EQ(e.values.at("CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
  EXPECT_EQ(e.values.count("CUDA_VISIBLE_DEVICES"), 0U);
  EXPECT_TRUE(e.warning.empty());
  f.visible_gpus = "2";
  for (const bool bound : {false, true}) {  // a task may see the step's list, or its own only
    f.gpu_bind = bound;
    f.node_gpus = bound ? 4 : 8;
    if (bound) f.step_gpus = "2";
    e = task_environment(f);
    EXPECT_EQ(e.values.at("MM_LOCAL_DEVICE"), "0");
    EXPECT_NE(e.warning.find("n0: Slurm lets each task see 1 of the step's 4 GPUs"), std::string::npos) << e.warning;
  }
  f.gpu_bind = false;  // a step with fewer GPUs than its job
  EXPECT_TRUE(task_environment(f).warning.empty());
}

TEST(TaskEnvironment, InterfacesAndCrowdedNodes) {
  TaskFacts f = facts(0);
  f.interfaces = {"ib0", "ib1"};
  f.cpus = 1;
  const auto v = task_environment(f).values;
  EXPECT_EQ(v.at("GLOO_SOCKET_IFNAME"), "ib0,ib1");
  EXPECT_EQ(v.at("NCCL_SOCKET_IFNAME"), "=ib0,ib1");
  EXPECT_EQ(v.at("OMPI_MCA_btl_tcp_if_include"), "ib0,ib1");
  EXPECT_EQ(v.at("OMPI_MCA_mpi_yield_when_idle"), "1");
}

TEST(MasterPort, DiffersBetweenNeighbouringStepsAndRestarts) {
  std::set<int> seen;
  for (uint32_t step = 0; step < 7; ++step)
    for (uint32_t restart = 0; restart < 20; ++restart) {
      const int port = master_port(4294967295U, step, restart);
      EXPECT_GE(port, 27200);
      EXPECT_LT(port, 32700);
      EXPECT_TRUE(seen.insert(port).second);
    }
}

TEST(Exported, WhatTheUserChangedIsTheUsers) {
  const std::map<std::string, std::string> ours = {{"RANK", "3"}, {"MASTER_ADDR", "n1"}, {"GONE", "x"}};
  std::map<std::string, std::string> now = {{"RANK", "3"}, {"MASTER_ADDR", "mine"}, {"HOME", "/"}};
  const auto names = still_ours(list_exported(ours), [&](const std::string& n) {
    const auto found = now.find(n);
    return found == now.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
  EXPECT_EQ(names, std::vector<std::string>{"RANK"});
  EXPECT_TRUE(still_ours("garbage,,:,a", [](const std::string&) { return std::optional<std::string>("x"); }).empty());
}

}  // namespace
}  // namespace mm::spank
