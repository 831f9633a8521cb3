// SPDX-License-Identifier: Apache-2.0
// Machines that nobody wrote down: every machine at hand, changed in a way whose effect on its map is known.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "spank_plugin/placement/binding.h"
#include "spank_plugin/placement/hwloc_tree.h"
#include "spank_plugin/placement/load.h"

namespace mm::placement {
namespace {

struct Machine {
  std::string name;
  XmlElement tree;
};

std::vector<Machine> machines() {
  std::vector<Machine> out;
  for (const char* folder : {"tests/spank_plugin/placement/machines", "../shared/topologies/hwloc"}) {
    if (!std::filesystem::exists(folder)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() != ".xml") continue;
      XmlElement tree = read_topology(entry.path().string());
      if (tree.name == "topology" && tree.get("version") != "3.0") out.push_back({entry.path().filename().string(), std::move(tree)});
    }
  }
  std::sort(out.begin(), out.end(), [](const Machine& a, const Machine& b) { return a.name < b.name; });
  return out;
}

bool is(const XmlElement& e, std::string_view type) {
  return e.name == "object" && e.get("type") == type;
}

void each(XmlElement& root, const std::function<void(XmlElement&)>& change) {
  change(root);
  for (XmlElement& child : root.children) each(child, change);
}

void drop(XmlElement& root, const std::function<bool(const XmlElement&)>& which) {
  each(root, [&](XmlElement& e) { std::erase_if(e.children, which); });
}

// 1, 5: what compute libraries name; 0: disks; 2: interfaces; 3: fabrics; 4: DMA engines.
bool is_os_device(const XmlElement& e, std::string_view kinds) {
  return is(e, "OSDev") && kinds.find(e.get("osdev_type", "?")) != std::string_view::npos;
}

// What holds for every map.
void expect_sane(const NodeMap& map, const std::string& what) {
  std::set<std::string> ids;
  CpuSet all;
  for (const Core& core : map.cores) all = all | core.cpus;
  for (const Gpu& gpu : map.gpus) {
    EXPECT_TRUE(ids.insert(gpu.id).second) << what << " " << gpu.id << " is there twice";
    if (gpu.numa >= 0) {
      const Numa* numa = map.numa_of(gpu.numa);
      ASSERT_NE(numa, nullptr) << what;
      EXPECT_TRUE(numa->has_cpus) << what << " " << gpu.id << " is on a node without CPUs";
    }
    EXPECT_FALSE(gpu.cpus.empty()) << what << " " << gpu.id;
    EXPECT_TRUE(all.includes(gpu.cpus)) << what << " " << gpu.id;
    EXPECT_EQ(std::set<int>(gpu.nics.begin(), gpu.nics.end()).size(), map.nics.size()) << what << " " << gpu.id;
  }
  BindingRequest request;
  for (size_t i = 0; i < map.gpus.size(); ++i) request.gpus.push_back(static_cast<int>(i));
  if (request.gpus.empty()) return;
  const std::vector<Binding> bound = bind_ranks(map, request);
  CpuSet used;
  int cpus = 0;
  for (const Binding& b : bound) {
    EXPECT_FALSE(b.cpus.empty()) << what;
    EXPECT_TRUE(map.allowed.empty() || map.allowed.includes(b.cpus)) << what;
    if (b.numa >= 0) {
      EXPECT_TRUE(map.numa_of(b.numa)->has_cpus) << what;
    }
    cpus += b.cpus.count();
    used = used | b.cpus;
  }
  if (map.cores.size() >= map.gpus.size() * 8) {
    EXPECT_EQ(used.count(), cpus) << what << ": ranks share CPUs";
  }
}

std::map<std::string, std::pair<int, std::string>> places(const NodeMap& map) {
  std::map<std::string, std::pair<int, std::string>> out;
  for (const Gpu& gpu : map.gpus) out[gpu.id] = {gpu.numa, format_list(gpu.cpus)};
  return out;
}

// GPU -> addresses of its NICs, nearest first.
std::map<std::string, std::string> nic_addresses(const NodeMap& map) {
  std::map<std::string, std::string> out;
  for (const Gpu& gpu : map.gpus)
    for (const int k : gpu.nics) out[gpu.id] += map.nics[static_cast<size_t>(k)].address + " ";
  return out;
}

NodeMap map_of(const XmlElement& tree, const std::string& name) {
  NodeMap map = map_node(read_hwloc_xml(tree, name));
  expect_sane(map, name);
  return map;
}

TEST(Variants, OrderOfTheTreeIsNothing) {
  std::mt19937 random(8);
  for (const Machine& m : machines()) {
    const NodeMap before = map_of(m.tree, m.name);
    XmlElement turned = m.tree;
    each(turned, [&](XmlElement& e) {
      // Of I/O objects alone: hwloc wants CPUs in their order.
      const auto movable = [](const XmlElement& c) { return is(c, "PCIDev") || is(c, "Bridge") || is(c, "OSDev"); };
      const auto first = std::find_if(e.children.begin(), e.children.end(), movable);
      const auto last = std::find_if_not(first, e.children.end(), movable);
      std::shuffle(first, last, random);
    });
    const NodeMap after = map_of(turned, m.name + " turned");
    EXPECT_EQ(places(after), places(before)) << m.name;
    for (const auto& [gpu, nics] : nic_addresses(after)) EXPECT_EQ(nics.empty(), nic_addresses(before)[gpu].empty()) << m.name;
  }
}

TEST(Variants, WithoutComputeLibrariesTheClassTells) {
  for (const Machine& m : machines()) {
    const auto before = places(map_of(m.tree, m.name));
    XmlElement bare = m.tree;
    drop(bare, [](const XmlElement& e) { return is_os_device(e, "15"); });
    const auto after = places(map_of(bare, m.name + " without libraries"));
    std::set<std::string> by_class;
    each(bare, [&](XmlElement& e) {
      if (is(e, "PCIDev") && (e.get("pci_type").substr(0, 4) == "0302" || e.get("pci_type").substr(0, 4) == "0380"))
        by_class.insert(std::string(e.get("pci_busid")));
    });
    for (const auto& [gpu, place] : before) {
      if (by_class.count(gpu) == 0) continue;
      EXPECT_EQ(after.count(gpu), 1U) << m.name << " loses " << gpu;
      EXPECT_TRUE(after.count(gpu) == 0 || after.at(gpu) == place) << m.name << " " << gpu;
    }
  }
}

TEST(Variants, WithoutNetworkGpusAreWhereTheyWere) {
  for (const Machine& m : machines()) {
    const auto before = places(map_of(m.tree, m.name));
    XmlElement bare = m.tree;
    drop(bare, [](const XmlElement& e) { return is_os_device(e, "23") || (is(e, "PCIDev") && e.get("pci_type").substr(0, 2) == "02"); });
    const NodeMap after = map_of(bare, m.name + " without NICs");
    EXPECT_EQ(places(after), before) << m.name;
    for (const Gpu& gpu : after.gpus) EXPECT_TRUE(gpu.nics.empty()) << m.name;
  }
}

// A machine whose devices are in another PCI domain is the same machine.
TEST(Variants, DomainsArePartOfTheAddressAlone) {
  for (const Machine& m : machines()) {
    const auto before = places(map_of(m.tree, m.name));
    if (std::any_of(before.begin(), before.end(), [](const auto& p) { return p.first.rfind("0000:", 0) != 0; })) continue;
    XmlElement moved = m.tree;
    each(moved, [](XmlElement& e) {
      for (auto& [key, value] : e.attributes)
        if ((key == "pci_busid" || key == "bridge_pci") && value.rfind("0000:", 0) == 0) value.replace(0, 4, "0a01");
    });
    const auto after = places(map_of(moved, m.name + " in domain 0a01"));
    ASSERT_EQ(after.size(), before.size()) << m.name;
    for (const auto& [gpu, place] : before) {
      const auto there = after.find("0a01" + gpu.substr(4));
      ASSERT_NE(there, after.end()) << m.name << " " << gpu;
      EXPECT_EQ(there->second, place) << m.name;
    }
  }
}

TEST(Variants, AllDevicesOnOnePackageAreOnItsNodes) {
  int seen = 0;
  for (const Machine& m : machines()) {
    XmlElement moved = m.tree;
    std::vector<XmlElement> bridges;
    each(moved, [&](XmlElement& e) {
      if (is(e, "Bridge")) return;
      for (XmlElement& c : e.children)
        if (is(c, "Bridge")) bridges.push_back(c);
      std::erase_if(e.children, [](const XmlElement& c) { return is(c, "Bridge"); });
    });
    XmlElement* first = nullptr;
    int packages = 0;
    each(moved, [&](XmlElement& e) {
      if ((is(e, "Package") || is(e, "Socket")) && packages++ == 0) first = &e;
    });
    if (packages < 2 || bridges.empty()) continue;
    first->children.insert(first->children.end(), bridges.begin(), bridges.end());
    const std::string cpuset(first->get("cpuset"));
    const NodeMap map = map_of(moved, m.name + " on one package");
    for (const Gpu& gpu : map.gpus) {
      EXPECT_EQ(gpu.numa, map.gpus.front().numa) << m.name;
      EXPECT_EQ(format_list(gpu.cpus), format_list(map.gpus.front().cpus)) << m.name;
    }
    seen += map.gpus.empty() ? 0 : 1;
  }
  EXPECT_GE(seen, 3);
}

// Serial numbers, addresses and names make no other kind of machine; a device less does.
TEST(Variants, MachinesOfAKindAreKnownAsSuch) {
  for (const Machine& m : machines()) {
    XmlElement twin = m.tree;
    XmlElement info;
    info.name = "info";
    info.attributes = {{"name", "HostName"}, {"value", "another"}};
    twin.children.front().children.insert(twin.children.front().children.begin(), info);
    each(twin, [&](XmlElement& e) {
      if (!is(e, "OSDev")) return;
      info.attributes = {{"name", "Address"}, {"value", "02:00:00:00:00:07"}};
      std::erase_if(e.children, [](const XmlElement& c) { return c.get("name") == "Address"; });
      e.children.push_back(info);
    });
    EXPECT_EQ(kind_of_machine(twin), kind_of_machine(m.tree)) << m.name;
    const size_t devices = map_of(m.tree, m.name).gpus.size();
    bool gone = false;
    each(twin, [&](XmlElement& e) {
      const auto at = std::find_if(e.children.begin(), e.children.end(), [](const XmlElement& c) { return is(c, "PCIDev"); });
      if (!gone && at != e.children.end()) e.children.erase(at), gone = true;
    });
    EXPECT_TRUE(!gone || kind_of_machine(twin) != kind_of_machine(m.tree)) << m.name << " with " << devices << " GPUs";
  }
}

}  // namespace
}  // namespace mm::placement
