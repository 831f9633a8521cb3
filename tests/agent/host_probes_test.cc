// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "agent/probes/host.h"
#include "agent/probes/sysfs.h"

namespace mm::agent {
namespace {

namespace fs = std::filesystem;

class Tree : public testing::Test {
 protected:
  Tree() { fs::create_directories(root_); }
  ~Tree() override { fs::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  static std::string codes(const ProbeResult& r) {
    std::string out;
    for (const auto& [key, report] : r.reports) out += report.code + " ";
    return out;
  }
  std::string root_ = testing::TempDir() + "probe-root-" + std::to_string(::getpid());
};

using Ports = Tree;
using Host = Tree;

TEST_F(Ports, DownFlappingAndSlow) {
  const std::string port = "/sys/class/infiniband/mlx5_0/ports/1";
  put(port + "/state", "4: ACTIVE\n");
  put(port + "/rate", "400 Gb/sec (4X NDR)\n");
  put(port + "/counters/link_downed", "3\n");
  put(port + "/counters/symbol_error", "N/A (no PMA)\n");
  put(port + "/counters/port_rcv_errors", "7\n");
  put("/sys/class/infiniband/mlx5_0/device/uevent", "DRIVER=mlx5_core\nPCI_SLOT_NAME=0000:1a:00.0\n");
  // Never cabled.
  put("/sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n");
  put("/sys/class/infiniband/mlx5_1/ports/1/rate", "10 Gb/sec (4X SDR)\n");
  const Probe probe = port_probe(root_);
  EXPECT_EQ(codes(probe.run()), "");
  put(port + "/counters/port_rcv_errors", "9\n");
  ProbeResult r = probe.run();
  EXPECT_EQ(codes(r), "");
  EXPECT_EQ(r.corrected.at({"0000:1a:00.0", "link"}), 2) << "a counter that is no number does not hide the others";
  put(port + "/rate", "200 Gb/sec (4X HDR)\n");
  put(port + "/counters/link_downed", "4\n");
  r = probe.run();
  EXPECT_EQ(codes(r), "link_flap port_rate ");
  EXPECT_EQ(r.reports.at("mlx5_0/1/link_flap").device, "0000:1a:00.0");
  put(port + "/rate", "400 Gb/sec (4X NDR)\n");
  put(port + "/state", "1: DOWN\n");
  EXPECT_EQ(codes(probe.run()), "link_flap ") << "a link that restarts is not down yet";
  r = probe.run();
  EXPECT_EQ(codes(r), "link_flap port_down ");
  EXPECT_EQ(r.reports.at("mlx5_0/1/port_down").action, Action::drain);
  put(port + "/state", "4: ACTIVE\n");
  EXPECT_EQ(codes(probe.run()), "link_flap ");
}

TEST_F(Host, MemoryAndStuckProcesses) {
  put("/proc/meminfo", "MemTotal:       100000 kB\nMemFree:        1000 kB\nMemAvailable:    50000 kB\n");
  put("/proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
  put("/proc/loadavg", "0.5 0.5 0.5 1/100 1234\n");
  const auto process = [&](const char* state, const char* start) {
    put("/proc/77/stat", std::string("77 (a (b) c) ") + state + " 1 77 77 0 -1 4194560 100 0 0 0 1 1 0 0 20 0 1 0 " + start + " 1000 100\n");
  };
  process("S", "500");
  const Probe probe = host_probe(root_);
  EXPECT_EQ(codes(probe.run()), "");
  process("D", "500");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(codes(probe.run()), "");
  ProbeResult r = probe.run();
  EXPECT_EQ(codes(r), "process_stuck ");
  EXPECT_NE(r.reports.at("stuck").evidence.front().find("77 (a (b) c)"), std::string::npos);
  process("D", "900");  // another process of the same number
  EXPECT_EQ(codes(probe.run()), "");
  put("/proc/meminfo", "MemTotal:       100000 kB\nMemFree:        100 kB\nMemAvailable:    1000 kB\n");
  put("/proc/pressure/memory", "some avg10=90.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=61.00 avg60=0.00 avg300=0.00 total=0\n");
  EXPECT_EQ(codes(probe.run()), "memory_low memory_pressure ");
}

TEST_F(Host, NvmeLinks) {
  const std::string disk = "/sys/class/nvme/nvme0/device/";
  put(disk + "current_link_width", "4\n");
  put(disk + "max_link_width", "4\n");
  put(disk + "current_link_speed", "16.0 GT/s PCIe\n");
  put(disk + "max_link_speed", "16.0 GT/s PCIe\n");
  const Probe probe = disk_probe({}, root_);
  EXPECT_EQ(codes(probe.run()), "");
  put(disk + "current_link_speed", "2.5 GT/s PCIe\n");
  EXPECT_EQ(codes(probe.run()), "pcie_speed ");
  put(disk + "current_link_width", "1\n");
  EXPECT_EQ(codes(probe.run()), "pcie_width ");
}

TEST_F(Host, FoldersThatWorkAndOneThatDoesNot) {
  EXPECT_EQ(codes(path_probe({root_}).run()), "");
  EXPECT_TRUE(fs::is_empty(root_));
  const ProbeResult r = path_probe({root_, root_ + "/absent"}).run();
  EXPECT_EQ(codes(r), "path_fails ");
  EXPECT_NE(r.reports.begin()->second.evidence.front().find("/absent/"), std::string::npos);
}

TEST_F(Host, MountsAreThoseOfRemoteTypes) {
  put("/proc/self/mountinfo", "36 35 98:0 / " + root_ + " rw,noatime shared:1 - nfs4 server:/x rw\n37 35 98:0 / /no/such/mount rw - lustre mgs:/s rw\n38 35 8:1 / / rw - ext4 /dev/sda1 rw\n");
  const ProbeResult r = mount_probe(root_).run();
  EXPECT_EQ(r.metrics.at("mm_remote_mounts"), 2);
  EXPECT_EQ(codes(r), "mount_fails ");
}

}  // namespace
}  // namespace mm::agent
