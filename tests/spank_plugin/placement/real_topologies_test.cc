// SPDX-License-Identifier: Apache-2.0
// Topologies of real machines, where they are at hand, against the answers that stand beside them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "common/error.h"
#include "spank_plugin/placement/load.h"
#include "spank_plugin/placement/node_map.h"

namespace mm::placement {
namespace {

const std::string folder = "../shared/topologies";

class RealTopologies : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  }
};

TEST_F(RealTopologies, GpusAreOnTheExpectedNumaNodes) {
  std::ifstream in(folder + "/expected.tsv");
  std::string line;
  std::getline(in, line);
  std::map<std::string, std::map<std::string, int>> want;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string file, gpu;
    int numa = -1;
    words >> file >> gpu >> numa;
    want[file][gpu] = numa;
  }
  ASSERT_GE(want.size(), 7U);
  for (const auto& [file, gpus] : want) {
    std::map<std::string, int> got;
    for (const Gpu& g : map_node(load_untrusted_topology(folder + "/hwloc/" + file)).gpus) got[g.id] = g.numa;
    EXPECT_EQ(got, gpus) << file;
  }
}

TEST_F(RealTopologies, VersionThreeIsRefusedByName) {
  try {
    load_untrusted_topology(folder + "/hwloc/hwloc-nvidia-dgx-gb10.xml");
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, exit_status::usage);
    EXPECT_NE(std::string(e.what()).find("hwloc-nvidia-dgx-gb10.xml: hwloc XML version 3.0"), std::string::npos) << e.what();
  }
}

std::string first_nics(const std::string& file) {
  const NodeMap map = map_node(load_topology(folder + "/" + file));
  std::string out;
  for (const Gpu& g : map.gpus) out += (out.empty() ? "" : " ") + map.nics.at(static_cast<size_t>(g.nics.at(0))).name;
  return out;
}

TEST_F(RealTopologies, FirstNicsAreNearAndShared) {
  EXPECT_EQ(first_nics("hwloc/llnl-coral-lassen.xml"), "mlx5_0 mlx5_1 mlx5_2 mlx5_3");
  EXPECT_EQ(first_nics("hwloc/llnl-coral-ea-hwloc1.xml"), "mlx5_0 mlx5_0 mlx5_1 mlx5_1");
  EXPECT_EQ(first_nics("hwloc/llnl-eas-tioga.xml"), "hsi0 hsi0 hsi1 hsi1 hsi2 hsi2 hsi3 hsi3");
  EXPECT_EQ(first_nics("hwloc/llnl-epyc-corona.xml"), "mlx5_0 mlx5_0 mlx5_0 mlx5_0");
  EXPECT_EQ(first_nics("hwloc/llnl-cts1-pascal.xml"), "mlx5_0 mlx5_0");
  EXPECT_EQ(first_nics("nccl/aws-p4d-24xl-topo.xml"),
            "0000:10:1b.0 0000:10:1b.0 0000:20:1b.0 0000:20:1b.0 0000:90:1b.0 0000:90:1b.0 0000:a0:1b.0 0000:a0:1b.0");
  EXPECT_EQ(first_nics("nccl/azure-ndv4-topo.xml"),
            "0101:00:00.0 0102:00:00.0 0103:00:00.0 0104:00:00.0 0105:00:00.0 0106:00:00.0 0107:00:00.0 0108:00:00.0");
}

TEST_F(RealTopologies, NvswitchesJoinAllGpus) {
  const NodeMap map = map_node(load_topology(folder + "/hwloc/hwloc-nvidiaDGX2.xml"));
  ASSERT_EQ(map.gpus.size(), 16U);
  for (size_t i = 0; i < 16; ++i)
    for (size_t j = 0; j < 16; ++j) EXPECT_EQ(map.gpus[i].peer[j] > 100, i != j) << i << " " << j;
}

}  // namespace
}  // namespace mm::placement
