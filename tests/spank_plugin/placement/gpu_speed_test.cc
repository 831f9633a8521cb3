// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/placement/gpu_speed.h"

#include <gtest/gtest.h>

namespace mm::placement {
namespace {

// Names as NVML, hwloc's list of PCI devices and ROCm give them.
TEST(GpuSpeed, IsKnownByEachOfAGpusNames) {
  const std::pair<const char*, double> known[] = {{"NVIDIA A100-SXM4-80GB", 2039},
                                                  {"NVIDIA A100-SXM4-40GB", 1555},
                                                  {"GA100 [A100 SXM4 40GB]", 1555},
                                                  {"NVIDIA H100 80GB HBM3", 3350},
                                                  {"GH100 [H100 SXM5 80GB]", 3350},
                                                  {"NVIDIA H100 PCIe", 2039},
                                                  {"NVIDIA H200", 4800},
                                                  {"NVIDIA GH200 480GB", 4000},
                                                  {"NVIDIA GB200", 8000},
                                                  {"Tesla V100-SXM3-32GB-H", 900},
                                                  {"GV100GL [Tesla V100 SXM2 16GB]", 900},
                                                  {"Tesla T4", 320},
                                                  {"NVIDIA L40S", 864},
                                                  {"NVIDIA L4", 300},
                                                  {"NVIDIA A10G", 600},
                                                  {"AMD Instinct MI250X", 1638},
                                                  {"Aldebaran/MI200 [Instinct MI250X/MI250]", 1638},
                                                  {"AMD Instinct MI300X", 5300},
                                                  {"Intel(R) Data Center GPU Max 1550", 3277}};
  for (const auto& [name, bandwidth] : known) {
    const std::optional<GpuSpeed> speed = speed_of_gpu(name);
    ASSERT_TRUE(speed) << name;
    EXPECT_EQ(speed->bandwidth, bandwidth) << name;
  }
  for (const char* name : {"", "NVIDIA A1000", "Graphics", "L4000 something", "MI3000"}) EXPECT_FALSE(speed_of_gpu(name)) << name;
}

TEST(GpuSpeed, MixedNodesAreRelativeToTheFastestAndUnknownOnesAlike) {
  std::vector<NodeMap> maps(3);
  maps[0].gpus.resize(2);
  maps[1].gpus.resize(2);
  maps[2].gpus.resize(1);
  for (Gpu& g : maps[0].gpus) g.model = "NVIDIA A100-SXM4-80GB";
  for (Gpu& g : maps[1].gpus) g.model = "NVIDIA H100 80GB HBM3";
  maps[2].gpus[0].model = "something new";
  std::vector<Node> nodes = {{"a", 2, 0, 1, 1}, {"b", 2, 1, 1, 1}};
  set_model_speeds(nodes, maps, {0, 1});
  EXPECT_NEAR(nodes[0].flops, 312.0 / 989, 1e-12);
  EXPECT_NEAR(nodes[0].memory_bandwidth, 2039.0 / 3350, 1e-12);
  EXPECT_EQ(nodes[1].flops, 1);
  nodes = {{"a", 2, 0, 1, 1}, {"c", 1, 2, 1, 1}};
  set_model_speeds(nodes, maps, {0, 2});
  EXPECT_EQ(nodes[0].flops, 1) << "one is not known: no guess";
}

}  // namespace
}  // namespace mm::placement
