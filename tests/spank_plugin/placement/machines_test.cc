// SPDX-License-Identifier: Apache-2.0
// Each machine in machines/ (XML written by hand) against the mapping that stands beside it: its GPUs with NUMA node, CPUs and
// NICs, and what each rank gets when every GPU has one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "common/error.h"
#include "common/files.h"
#include "spank_plugin/placement/binding.h"
#include "spank_plugin/placement/hwloc_tree.h"
#include "spank_plugin/placement/load.h"
#include "spank_plugin/placement/nccl_topology.h"

namespace mm::placement {
namespace {

const std::string folder = "tests/spank_plugin/placement/machines";

std::string describe(const NodeMap& map) {
  std::string out;
  for (const Gpu& g : map.gpus) {
    std::string nics;
    for (const int k : g.nics) nics += (nics.empty() ? "" : ",") + map.nics[static_cast<size_t>(k)].name;
    out += fmt::format("{} numa {} cpus {} nics {}\n", g.id, g.numa, format_list(g.cpus), nics.empty() ? "none" : nics);
  }
  BindingRequest request;
  for (size_t i = 0; i < map.gpus.size(); ++i) request.gpus.push_back(static_cast<int>(i));
  if (request.gpus.empty()) request.gpus = {-1, -1};
  const std::vector<Binding> bound = bind_ranks(map, request);
  for (size_t i = 0; i < bound.size(); ++i)
    out += fmt::format("rank {} cpus {} numa {}\n", i, format_list(bound[i].cpus), bound[i].numa);
  return out;
}

TEST(Machines, AreMappedAsExpected) {
  int machines = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".xml") continue;
    ++machines;
    std::filesystem::path expected = entry.path();
    expected.replace_extension(".expected");
    EXPECT_EQ(describe(map_node(load_untrusted_topology(entry.path().string()))), read_file(expected.string())) << entry.path();
  }
  EXPECT_EQ(machines, 16);
}

TEST(Machines, TrainingInterfacesAloneAreNics) {
  const NodeMap map = map_node(load_topology(folder + "/hgx-8gpu.xml"), {"ib6", "ib8"});
  ASSERT_EQ(map.nics.size(), 2U);
  EXPECT_EQ(map.nics[0].name, "mlx5_6");
  EXPECT_EQ(map.nics[0].gpus.size() + map.nics[1].gpus.size(), 8U);
}

TEST(Machines, NcclDescriptionFillsWhatIsHidden) {
  const XmlElement described = parse_xml(
      "<system version='1'><cpu numaid='1' affinity='0000ffff'><pci busid='ffff:ff:01.0' class='0x060400'>"
      "<pci busid='0000:20:00.0' class='0x030200'/><pci busid='0000:11:00.0' class='0x020700'/></pci></cpu></system>",
      "nccl");
  const NodeMap map = map_node(merge(load_topology(folder + "/two-cpus.xml"), read_nccl_xml(described, "nccl")));
  ASSERT_EQ(map.gpus.size(), 2U);
  EXPECT_EQ(map.gpus[1].id, "0000:20:00.0");
  EXPECT_EQ(map.gpus[1].numa, 1);
  EXPECT_EQ(format_list(map.gpus[1].cpus), "1") << "the CPUs are this machine's";
  EXPECT_EQ(map.nics[static_cast<size_t>(map.gpus[1].nics[0])].name, "mlx5_1");
  for (const char* bad : {"<system><cpu numaid='x'/></system>", "<system><cpu numaid='0'><pci busid='zz'/></cpu></system>"})
    EXPECT_THROW(read_nccl_xml(parse_xml(bad, "nccl"), "nccl"), Error) << bad;
}

// A rank has a CPU whatever is granted, only granted ones, and no two ranks have the same while there are enough.
TEST(Binding, IsFairAndInsideWhatIsGranted) {
  const NodeMap map = map_node(load_topology(folder + "/nps4-8gcd.xml"));
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    BindingRequest request;
    const int ranks = 1 + static_cast<int>(random() % 8);
    for (int r = 0; r < ranks; ++r) request.gpus.push_back(round % 4 == 0 ? -1 : static_cast<int>(random() % 8));
    for (int c = 0; c < 64; ++c)
      if (random() % 3 != 0) request.granted.add(c);
    for (unsigned c = 0; c < random() % 20; ++c) request.reserved.add(static_cast<int>(random() % 64));
    if (round % 3 == 0) request.cpus_per_rank = 1 + static_cast<int>(random() % 4);
    const std::vector<Binding> bound = bind_ranks(map, request);
    for (size_t i = 0; i < bound.size(); ++i) {
      EXPECT_FALSE(bound[i].cpus.empty());
      EXPECT_TRUE((request.granted - request.reserved).includes(bound[i].cpus));
      if (request.cpus_per_rank > 0) {
        EXPECT_EQ(bound[i].cpus.count(), request.cpus_per_rank);
      }
    }
  }
}

TEST(Binding, ReservedAndScarceCpus) {
  const NodeMap map = map_node(load_topology(folder + "/two-cpus.xml"));
  EXPECT_EQ(format_list(*reserved_cpus(map, "1")), "0");
  EXPECT_EQ(format_list(*reserved_cpus(map, "0-1")), "0-1");
  EXPECT_FALSE(reserved_cpus(map, "many"));
  BindingRequest request;
  request.gpus = {0, 1};
  request.reserved = *reserved_cpus(map, "1");
  std::vector<Binding> bound = bind_ranks(map, request);
  EXPECT_EQ(format_list(bound[0].cpus), "1");
  EXPECT_EQ(format_list(bound[1].cpus), "1") << "its own node has no CPU left: the nearest that has";
  request.reserved = *reserved_cpus(map, "2");
  bound = bind_ranks(map, request);
  EXPECT_EQ(format_list(bound[0].cpus), "1") << "where all is reserved, nothing is";
  request.gpus = {-1};
  request.reserved = {};
  bound = bind_ranks(map, request);
  EXPECT_EQ(format_list(bound[0].cpus), "0-1") << "a rank alone without a GPU has the whole node";
}

// The copy that one process writes is what another reads; a file of anybody else's is not taken.
TEST(SharedTree, IsTheMachinesOwn) {
  char dir[] = "/tmp/mm-place-test.XXXXXX";
  ASSERT_NE(::mkdtemp(dir), nullptr);
  const std::string path = shared_path(dir, "node1");
  EXPECT_FALSE(read_shared(path));
  share_this_machine(path);
  const std::optional<Hardware> shared = read_shared(path);
  const Hardware own = read_this_machine(Discovery::full);
  ASSERT_TRUE(shared);
  ASSERT_EQ(shared->cores.size(), own.cores.size());
  for (size_t i = 0; i < own.cores.size(); ++i) EXPECT_TRUE(shared->cores[i].cpus == own.cores[i].cpus);
  EXPECT_EQ(shared->devices.size(), own.devices.size());
  std::filesystem::permissions(path, std::filesystem::perms::others_write, std::filesystem::perm_options::add);
  EXPECT_FALSE(read_shared(path)) << "others may write it";
  std::ofstream(path, std::ios::trunc) << "no topology";
  std::filesystem::permissions(path, std::filesystem::perms::others_write, std::filesystem::perm_options::remove);
  EXPECT_FALSE(read_shared(path));
  std::filesystem::remove_all(dir);
}

std::string why_not(const std::string& text) {
  const std::string path = fmt::format("/tmp/mm-place-test-{}.xml", ::getpid());
  std::ofstream(path, std::ios::binary) << text;
  std::string out;
  try {
    map_node(load_untrusted_topology(path));
  } catch (const Error& e) {
    EXPECT_EQ(e.status, exit_status::usage);
    EXPECT_NE(std::string(e.what()).find(path), std::string::npos) << e.what();
    out = e.what();
  }
  std::filesystem::remove(path);
  return out;
}

TEST(HostileTopologies, AreRefusedByName) {
  EXPECT_NE(why_not("").find("no element"), std::string::npos);
  EXPECT_NE(why_not("<html/>").find("<html>"), std::string::npos);
  EXPECT_NE(why_not("<topology version='3.0'/>").find("version 3.0"), std::string::npos);
  EXPECT_NE(why_not("<topology version='2.0'/>").find("no valid topology"), std::string::npos);
  EXPECT_THROW(load_untrusted_topology("/nowhere.xml"), Error);
  EXPECT_THROW(load_untrusted_topology("/dev/zero"), Error);
}

// Damaged files are read or refused, and nothing worse.
TEST(HostileTopologies, DoNoHarm) {
  std::mt19937 random(17);
  int refused = 0;
  for (const char* name : {"superchip", "two-cpus", "no-pci"}) {
    const std::string good = read_file(fmt::format("{}/{}.xml", folder, name));
    for (int i = 0; i < 60; ++i) {
      std::string text = good;
      for (unsigned k = 0; k <= random() % 4; ++k) {
        const size_t at = random() % text.size();
        switch (random() % 4) {
          case 0:
            text[at] = "0123456789abcdefx\"<>"[random() % 20];
            break;
          case 1:
            text.erase(at, 1 + random() % 80);
            break;
          case 2:
            text.insert(at, good.substr(random() % good.size(), random() % 200));
            break;
          default: {  // a number becomes another
            const size_t digit = text.find_first_of("0123456789", at);
            if (digit != std::string::npos) text.replace(digit, 1, std::to_string(random()));
          }
        }
        if (text.empty()) text = "<";
      }
      if (!why_not(text).empty()) ++refused;
    }
  }
  EXPECT_GT(refused, 60);
}

}  // namespace
}  // namespace mm::placement
