// SPDX-License-Identifier: Apache-2.0
// Nodes that differ: their trees by the site's files, and what srun makes of them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "common/error.h"
#include "common/files.h"
#include "spank_plugin/node_tree.h"
#include "spank_plugin/rank_order.h"

namespace mm::spank {
namespace {

class NodesThatDiffer : public testing::Test {
 protected:
  NodesThatDiffer() {
    char pattern[] = "/tmp/mm-trees-XXXXXX";
    folder_ = ::mkdtemp(pattern);
    site_.topology = folder_ + "/%n.xml";
    site_.run_dir = folder_;
  }
  ~NodesThatDiffer() override { std::filesystem::remove_all(folder_); }
  void put(const std::string& node, const std::string& machine, const std::string& model = "") {
    std::string text = read_file("tests/spank_plugin/placement/machines/" + machine + ".xml");
    const std::string device = "<object type=\"PCIDev\"";
    if (!model.empty())
      for (size_t at = text.find(device); at != std::string::npos; at = text.find(device, at + 1)) {
        const size_t end = text.find('>', at);
        if (text.substr(at, end - at).find("pci_type=\"0302") == std::string::npos) continue;
        const std::string info = "<info name=\"PCIDevice\" value=\"" + model + "\"/>";
        if (text[end - 1] == '/')
          text.replace(end - 1, 2, ">" + info + "</object>");
        else
          text.insert(end + 1, info);
      }
    write_file_durably(folder_ + "/" + node + ".xml", text);
  }
  std::string folder_;
  Site site_;
};

TEST_F(NodesThatDiffer, HaveTheirOwnTreesOncePerKind) {
  const std::vector<std::string> step = {"a1", "a2", "b1", "c1"};
  put("a1", "hgx-8gpu");
  put("a2", "hgx-8gpu");
  put("b1", "two-cpus");
  NodeTrees trees(site_);
  EXPECT_TRUE(trees.differ());
  EXPECT_EQ(trees.of("a1", step), trees.of("a2", step));
  EXPECT_NE(trees.of("a1", step), trees.of("b1", step));
  EXPECT_EQ(trees.maps()[static_cast<size_t>(trees.of("a1", step))].gpus.size(), 8U);
  EXPECT_EQ(trees.maps()[static_cast<size_t>(trees.of("b1", step))].gpus.size(), 2U);
  EXPECT_TRUE(trees.maps()[static_cast<size_t>(trees.of("c1", step))].gpus.empty()) << "no file, and not this node";
  put("d1", "two-cpus");
  write_file_durably(folder_ + "/d2.xml", "<topology version='3.0'/>");
  EXPECT_THROW(trees.of("d2", step), Error);
  site_.topology = folder_ + "/a1.xml";
  NodeTrees alike(site_);
  EXPECT_FALSE(alike.differ());
  EXPECT_EQ(alike.of("a1", step), alike.of("b1", step));
}

TEST_F(NodesThatDiffer, StagesHaveTheSpeedOfTheirGpus) {
  put("n1", "two-cpus", "NVIDIA A100-SXM4-80GB");
  put("n2", "two-cpus", "NVIDIA H100 80GB HBM3");
  put("n3", "two-cpus", "NVIDIA H100 80GB HBM3");
  put("n4", "two-cpus", "NVIDIA A100-SXM4-80GB");
  Job job;
  job.parallel.tp = 2;
  job.parallel.pp = 2;
  const std::vector<std::string> nodes = {"n1", "n2", "n3", "n4"};
  const RankOrder order = order_ranks(job, nodes, {2, 2, 2, 2}, "", site_);
  EXPECT_EQ(order.warning, "");
  ASSERT_EQ(order.node_of_rank.size(), 8U);
  // Nodes of a kind make a stage.
  for (const size_t first : {0U, 4U}) {
    const std::string one = order.node_of_rank[first], other = order.node_of_rank[first + 2];
    EXPECT_TRUE((one + other == "n1n4") || (one + other == "n4n1") || (one + other == "n2n3") || (one + other == "n3n2"))
        << one << " " << other;
  }
  const std::string speeds = stage_speeds_of(job, order.node_of_rank, site_);
  EXPECT_TRUE(speeds == "1:1,0.31547:0.608657" || speeds == "0.31547:0.608657,1:1") << speeds;
  EXPECT_EQ(stage_speeds_of(job, {"n1", "n1", "n2", "n2", "n3", "n3", "n4", "n4"}, site_), "") << "both stages are as slow";
  site_.speeds = {"n2=0.5"};
  EXPECT_EQ(stage_speeds_of(job, {"n1", "n1", "n2", "n2", "n3", "n3", "n4", "n4"}, site_), "0.5:0.5,1:1") << "the site's word is stronger";
}

}  // namespace
}  // namespace mm::spank
