// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/task_binding.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "spank_plugin/node_tree.h"
#include "spank_plugin/placement/load.h"
#include "spank_plugin/rank_order.h"

namespace mm::spank {
namespace {

placement::NodeMap machine(const std::string& name) {
  return placement::map_node(placement::load_topology("tests/spank_plugin/placement/machines/" + name + ".xml"));
}

TaskView view(int local_rank, int ranks, const std::string& devices) {
  TaskView v;
  v.local_rank = local_rank;
  for (int r = 0; r < ranks; ++r) v.ranks.push_back(r);
  v.tasks = ranks;
  v.visible["CUDA_VISIBLE_DEVICES"] = v.step_gpus = devices;
  return v;
}

TaskBinding bind(const placement::NodeMap& map, const Record& record, const TaskView& v) {
  return bind_task(map, record, "", {}, v);
}

TEST(TaskBinding, CpusMemoryAndNicAreTheGpus) {
  const placement::NodeMap map = machine("two-cpus");
  for (int rank = 0; rank < 2; ++rank) {
    const TaskBinding b = bind(map, {}, view(rank, 2, "0,1"));
    EXPECT_EQ(b.gpu, rank == 0 ? "0000:10:00.0" : "0000:20:00.0");
    EXPECT_EQ(b.nic, rank == 0 ? "mlx5_1" : "mlx5_0");
    EXPECT_EQ(format_list(b.cpus), rank == 0 ? "1" : "0");
    EXPECT_EQ(b.numa, rank == 0 ? 1 : 0);
    EXPECT_TRUE(b.visible.empty()) << "nothing to reorder";
  }
}

TEST(TaskBinding, TheUsersChoiceStays) {
  Record record;
  record.user_cpus = record.user_memory = true;
  const TaskBinding b = bind(machine("two-cpus"), record, view(0, 2, "0,1"));
  EXPECT_TRUE(b.cpus.empty());
  EXPECT_EQ(b.numa, -1);
  EXPECT_EQ(b.gpu, "0000:10:00.0");
}

TEST(TaskBinding, MinorsTellGpusApart) {
  TaskView v = view(0, 2, "0,1");
  v.minors = {{0, *placement::parse_address("0000:20:00.0")}, {1, *placement::parse_address("0000:10:00.0")}};
  EXPECT_EQ(bind(machine("two-cpus"), {}, v).gpu, "0000:20:00.0");
}

TEST(TaskBinding, NamesThatSayNothingKeepTheirOrder) {
  for (const char* devices : {"MIG-1,MIG-2", "GPU-aa,GPU-bb", "0,7"}) {
    const TaskBinding b = bind(machine("two-cpus"), {}, view(1, 2, devices));
    EXPECT_EQ(b.gpu, "") << devices;
    EXPECT_TRUE(b.visible.empty());
    EXPECT_EQ(b.cpus.count(), 1) << "CPUs are shared all the same";
  }
}

// Slurm numbers MIG instances in the step's list, too; and a list that Slurm did not set is the user's.
TEST(TaskBinding, InstancesAndListsOfTheUserStay) {
  TaskView v = view(1, 2, "0,1");
  v.visible["CUDA_VISIBLE_DEVICES"] = "MIG-1,MIG-2";
  EXPECT_EQ(bind(machine("two-cpus"), {}, v).gpu, "");
  v = view(1, 4, "");
  v.visible["CUDA_VISIBLE_DEVICES"] = "0,2,1,3";
  const TaskBinding b = bind(machine("partitioned-class1200"), {}, v);
  EXPECT_TRUE(b.visible.empty());
  EXPECT_EQ(b.gpu, machine("partitioned-class1200").gpus[2].id);
}

TEST(TaskBinding, ABindingThatDoesNotTellTheStepsCpusStays) {
  TaskView v = view(0, 2, "0,1");
  v.bound = true;
  EXPECT_TRUE(bind(machine("two-cpus"), {}, v).cpus.empty());
}

TEST(TaskBinding, NarrowedTasksAndTasksAlone) {
  TaskView v = view(0, 2, "1");
  v.narrowed = true;
  const TaskBinding narrowed = bind(machine("two-cpus"), {}, v);
  EXPECT_EQ(narrowed.gpu, "0000:20:00.0");
  EXPECT_EQ(format_list(narrowed.cpus), "0");
  EXPECT_EQ(format_list(bind(machine("two-cpus"), {}, view(0, 1, "0,1")).cpus), "0-1") << "it starts programs of its own";
  EXPECT_EQ(format_list(bind(machine("two-cpus"), {}, view(0, 1, "0")).cpus), "1");
  EXPECT_EQ(bind({}, {}, view(0, 2, "0,1")).cpus.count(), 0) << "no tree";
}

// Four GPUs of which each tensor group should have the two that share a switch: Slurm lists them crosswise.
TEST(TaskBinding, TensorPeersGetGpusThatAreNear) {
  const placement::NodeMap map = machine("partitioned-class1200");
  Record record;
  record.tp = 2;
  std::vector<std::string> gpus;
  for (int rank = 0; rank < 4; ++rank) {
    TaskView v = view(rank, 4, "0,2,1,3");
    v.visible = {{"ROCR_VISIBLE_DEVICES", "0,2,1,3"}, {"CUDA_VISIBLE_DEVICES", "0,2,1,3"}};
    const TaskBinding b = bind(map, record, v);
    EXPECT_EQ(b.visible.size(), 1U) << "one variable alone";
    EXPECT_EQ(b.visible.count("ROCR_VISIBLE_DEVICES"), 1U);
    gpus.push_back(b.gpu);
  }
  const auto package = [&](const std::string& gpu) { return gpu < "0000:60"; };
  EXPECT_EQ(package(gpus[0]), package(gpus[1]));
  EXPECT_EQ(package(gpus[2]), package(gpus[3]));
  EXPECT_NE(package(gpus[0]), package(gpus[2]));
}

TEST(TaskBinding, GrantedCpus) {
  EXPECT_EQ(format_list(granted_cpus("mask_cpu:", "0x1,0x4")), "0,2");
  EXPECT_EQ(format_list(granted_cpus("threads,mask_cpu:", "0x1,0x4*2")), "0,2");
  EXPECT_EQ(format_list(granted_cpus("map_cpu:", "3,0x1*2")), "0,3");
  EXPECT_TRUE(granted_cpus("none", "").empty());
  EXPECT_TRUE(granted_cpus("mask_cpu:", "zz").empty());
}

TEST(NodeTree, MinorsOfTheDriver) {
  char dir[] = "/tmp/mm-minors.XXXXXX";
  ASSERT_NE(::mkdtemp(dir), nullptr);
  const std::filesystem::path root = dir;
  for (const auto& [bus, minor] : {std::pair("0000:3b:00.0", 1), std::pair("0000:1a:00.0", 0)}) {
    std::filesystem::create_directories(root / bus);
    std::ofstream(root / bus / "information")
        << "Model: \t\t NVIDIA H100\nBus Location: \t " << bus << "\nDevice Minor: \t " << minor << "\n";
  }
  const auto minors = gpu_minors(dir);
  ASSERT_EQ(minors.size(), 2U);
  EXPECT_EQ(format_address(minors.at(1)), "0000:3b:00.0");
  EXPECT_TRUE(gpu_minors(root / "none").empty());
  std::filesystem::remove_all(root);
}

TEST(RankOrder, EachNodeKeepsItsTasks) {
  Job job;
  job.parallel.tp = 2;
  const std::string tree = "SwitchName=a Nodes=n[1,3]\nSwitchName=b Nodes=n[2,4]\nSwitchName=s Switches=a,b\n";
  const RankOrder order = order_ranks(job, {"n1", "n2", "n3", "n4"}, {2, 2, 2, 2}, tree, Site());
  ASSERT_EQ(order.node_of_rank.size(), 8U);
  EXPECT_EQ(order.warning, "");
  for (int n = 1; n <= 4; ++n)
    EXPECT_EQ(std::count(order.node_of_rank.begin(), order.node_of_rank.end(), "n" + std::to_string(n)), 2);
  for (size_t r = 0; r < 8; r += 2) EXPECT_EQ(order.node_of_rank[r], order.node_of_rank[r + 1]);
}

TEST(RankOrder, HelpersFollowTheTreeAndBrokenTreesWarn) {
  Job job;
  job.parallel.tp = 3;
  const std::string tree = "SwitchName=a Nodes=n[1,3]\nSwitchName=b Nodes=n2\n";
  EXPECT_EQ(order_ranks(job, {"n1", "n2", "n3"}, {1, 1, 2}, tree, Site()).node_of_rank,
            (std::vector<std::string>{"n1", "n3", "n3", "n2"}));
  const RankOrder broken = order_ranks(job, {"n2", "n1"}, {1, 2}, "SwitchName=a Nodes=n[1-\n", Site());
  EXPECT_EQ(broken.node_of_rank, (std::vector<std::string>{"n2", "n1", "n1"}));
  EXPECT_NE(broken.warning.find("Slurm's order of nodes stays"), std::string::npos);
}

}  // namespace
}  // namespace mm::spank
