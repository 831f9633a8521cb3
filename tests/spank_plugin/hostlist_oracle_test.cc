// SPDX-License-Identifier: Apache-2.0
// Host lists against `scontrol show hostnames`, which needs a slurm.conf, but no Slurm that runs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "common/hostlist.h"
#include "common/process.h"

namespace mm::spank {
namespace {

using Names = std::vector<std::string>;

class HostlistOracle : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(folder_), nullptr);
    conf_ = std::string(folder_) + "/slurm.conf";
    std::ofstream(conf_)
        << "ClusterName=none\nSlurmctldHost=localhost\nNodeName=localhost\nPartitionName=all Nodes=localhost\n";
    ASSERT_EQ(ask("n1"), Names{"n1"}) << "scontrol show hostnames does not answer; make deps installs it";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Names ask(const std::string& list) const {
    const CommandResult r =
        run_command({"env", "SLURM_CONF=" + conf_, "scontrol", "show", "hostnames", list}, std::chrono::seconds(20));
    Names out;
    std::istringstream lines(r.out);
    for (std::string line; std::getline(lines, line);) out.push_back(line);
    return out;
  }

 private:
  char folder_[32] = "/tmp/mm-hostlist.XXXXXX";
  std::string conf_;
};

TEST_F(HostlistOracle, OddFormsOfRealClusters) {
  for (const char* list : {"nodeA,nodeB[001,003],nodeC",
                           "rack[0-1]_blade[0-1]",
                           "c1001a-s[11,17]",
                           "c457-[011-012]",
                           "n[08-11]",
                           "n[098-101]",
                           "r[1-2]c[01-02]n[7,9]",
                           "n[01-3]",
                           "n1,n1,n[1-2]",
                           "a,,b,",
                           "n[3,1,2]",
                           "node[0-0]",
                           "gpu-a100-[1-2],cpu[9-10]",
                           "n1 n2\tn3\nn4",
                           "n[0001-0003,10]",
                           "x-1-[1-2]",
                           "1,2",
                           "a[1-2]b[2,1]c[1-2]d[7-8]",
                           "[1-3]",
                           "n[1-03]"})
    EXPECT_EQ(expand_hostlist(list), ask(list)) << list;
}

TEST_F(HostlistOracle, RandomLists) {
  std::mt19937 random(31);
  const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
  for (int round = 0; round < 60; ++round) {
    std::string list;
    for (int element = 0; element <= below(4); ++element) {
      if (!list.empty()) list += ',';
      list += std::array{"n", "node-", "c457-", "rack_", "a1b"}[static_cast<size_t>(below(5))];
      for (int dimension = 0; dimension <= below(3); ++dimension) {
        if (dimension > 0) list += "_b";
        list += '[';
        for (int item = 0; item <= below(3); ++item) {
          const int low = below(120), width = 1 + below(4);
          list += fmt::format("{}{:0{}}", item > 0 ? "," : "", low, width);
          if (below(2) == 0) list += fmt::format("-{:0{}}", low + below(15), width);
        }
        list += ']';
      }
    }
    EXPECT_EQ(expand_hostlist(list), ask(list)) << list;
    EXPECT_EQ(ask(compress_hostlist(expand_hostlist(list))), ask(list)) << list;
  }
}

}  // namespace
}  // namespace mm::spank
