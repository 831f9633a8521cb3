// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "agent/probes/ethtool.h"
#include "agent/probes/host.h"
#include "agent/probes/sysfs.h"
#include "agent/probes/temperature_drift.h"
#include "common/error.h"

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

TEST_F(Host, MemoryAgainstItsOwnHistory) {
  const auto used = [&](int percent) { put("/proc/meminfo", "MemTotal: 100000 kB\nMemAvailable: " + std::to_string(1000 * (100 - percent)) + " kB\n"); };
  used(60);
  const Probe probe = host_probe(root_);
  EXPECT_EQ(codes(probe.run()), "");
  used(90);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(codes(probe.run()), "");
  for (int i = 0; i < 500; ++i) ASSERT_EQ(codes(probe.run()), "memory_high ") << "what lasts does not become usual";
  used(70);
  EXPECT_EQ(codes(probe.run()), "");
  // A node that is always full is not unusual.
  used(92);
  const Probe full = host_probe(root_);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(codes(full.run()), "");
}

TEST_F(Host, Interfaces) {
  const std::string nic = "/sys/class/net/ens1";
  put(nic + "/device/vendor", "0x15b3\n");
  put(nic + "/speed", "200000\n");
  put(nic + "/carrier_down_count", "1\n");
  put(nic + "/statistics/rx_crc_errors", "5\n");
  put("/sys/class/net/veth0/speed", "10000\n");  // no hardware
  const Probe probe = interface_probe(root_);
  EXPECT_EQ(codes(probe.run()), "");
  put(nic + "/speed", "-1\n");
  put(nic + "/carrier_down_count", "3\n");
  put(nic + "/statistics/rx_crc_errors", "9\n");
  ProbeResult r = probe.run();
  EXPECT_EQ(codes(r), "link_flap ") << "a link that is down has no speed";
  EXPECT_EQ(r.reports.at("ens1/link_flap").count, 2);
  EXPECT_EQ(r.corrected.at({"ens1", "interface"}), 4);
  put(nic + "/speed", "100000\n");
  EXPECT_EQ(codes(probe.run()), "link_flap interface_speed ");
  put(nic + "/speed", "200000\n");
  EXPECT_EQ(codes(probe.run()), "link_flap ");
  EXPECT_EQ(probe.run().metrics.count("mm_interface_speed_mbps{interface=\"veth0\"}"), 0u);
}

TEST(Ethtool, NamesOfDrivers) {
  const DriverCounters counters = {{"rx_crc_errors_phy", 1},         {"rx_symbol_err_phy", 2},   {"rx_pcs_symbol_err_phy", 4}, {"rx_corrected_bits_phy", 1000000},
                                   {"rx_fec_corrected_err", 100000}, {"rx_fcs_err_frames", 8},   {"rx_align_err_frames", 16},  {"rx_crc_errors.nic", 32},
                                   {"illegal_bytes.nic", 64},        {"rx_packets", 1000000000}, {"rx_align_errors", 128},     {"rx_discards_phy", 7}};
  EXPECT_EQ(wire_errors(counters), 255);
  EXPECT_TRUE(driver_counters("no-such-nic").empty());
  for (const std::string& nic : list_folder("/sys/class/net"))  // what this machine has
    for (const auto& [name, value] : driver_counters(nic)) EXPECT_FALSE(name.empty()) << nic;
  EXPECT_TRUE(driver_counters("a-name-that-is-longer-than-any").empty());
}

TEST_F(Host, Smart) {
  fs::create_directories(root_ + "/sys/class/nvme/nvme0");
  fs::create_directories(root_ + "/sys/block/sda");
  fs::create_directories(root_ + "/sys/block/loop0");
  // As smartctl does, it prints its JSON and ends with a status that is not 0 where it finds something.
  const std::string program = root_ + "/smartctl";
  put("/smartctl", "#!/bin/sh\nfor d; do :; done\ncat \"$(dirname \"$0\")/$(basename \"$d\").json\"\nexit 4\n");
  fs::permissions(program, fs::perms::owner_all);
  const std::string fine = R"({"smart_status":{"passed":true},"nvme_smart_health_information_log":{"critical_warning":0,"temperature":40,"percentage_used":3,"media_errors":2}})";
  put("/nvme0.json", fine);
  const auto ata = [&](int pending) {
    put("/sda.json", R"({"smart_status":{"passed":true},"ata_smart_attributes":{"table":[{"id":5,"raw":{"value":8}},{"id":9,"raw":{"value":30000}},{"id":197,"raw":{"value":)" + std::to_string(pending) + "}}]}}");
  };
  ata(0);
  const Probe probe = smart_probe(program, root_);
  ProbeResult r = probe.run();
  EXPECT_EQ(codes(r), "") << "defects from before are no news";
  EXPECT_EQ(r.metrics.at("mm_disk_defects_total{disk=\"sda\"}"), 8);
  EXPECT_FALSE(r.metrics.contains("mm_disk_smart_read{disk=\"loop0\"}"));
  ata(3);
  r = probe.run();
  EXPECT_EQ(codes(r), "smart_defects ");
  EXPECT_EQ(r.reports.at("sda/smart_defects").device, "sda");
  EXPECT_EQ(codes(probe.run()), "smart_defects ") << "it is not over by being seen";
  put("/nvme0.json", R"({"smart_status":{"passed":false},"nvme_smart_health_information_log":{"critical_warning":9,"percentage_used":101,"media_errors":2}})");
  EXPECT_EQ(codes(probe.run()), "smart_failing smart_read_only smart_worn smart_defects ");
  put("/nvme0.json", "smartctl: Permission denied\n");
  put("/sda.json", "[]");
  r = probe.run();
  EXPECT_EQ(codes(r), "") << "what cannot be read says nothing";
  EXPECT_EQ(r.metrics.at("mm_disk_smart_read{disk=\"nvme0\"}"), 0);
}

TEST(Services, MungeIsTriedAndOneMissIsNoNews) {
  bool works = true;
  const Probe probe = munge_probe([&] {
    if (!works) throw Error(exit_status::internal, "munge: Failed to access socket");
  });
  EXPECT_TRUE(probe.run().reports.empty());
  works = false;
  EXPECT_TRUE(probe.run().reports.empty());
  const ProbeResult r = probe.run();
  ASSERT_TRUE(r.reports.contains("down"));
  EXPECT_NE(r.reports.at("down").evidence.front().find("Failed to access socket"), std::string::npos);
  EXPECT_EQ(r.metrics.at("mm_munge_answers"), 0);
  works = true;
  EXPECT_TRUE(probe.run().reports.empty());
}

TEST(Services, AClockThatLosesItsServerIsNewsAndOneThatNeverHadOneIsNot) {
  ClockState now;
  const Probe probe = clock_probe([&] { return now; });
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(probe.run().reports.empty());
  now.synchronised = true;
  EXPECT_TRUE(probe.run().reports.empty());
  now = {false, 16};
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(probe.run().reports.empty());
  EXPECT_EQ(probe.run().reports.at("ntp").code, "ntp_lost");
  now.synchronised = true;
  EXPECT_TRUE(probe.run().reports.empty());
  EXPECT_GE(kernel_clock().max_error, 0);
}

TEST(Temperature, AGpuThatBecomesHotterThanItsPeers) {
  TemperatureDrift drift;
  unsigned load = 0;
  const auto look = [&](unsigned extra, double watts = 400) {
    // Two of them have a warm place; all follow the load.
    load = (load + 7) % 30;
    GpuStates gpus;
    for (int i = 0; i < 8; ++i) {
      GpuState g;
      g.temperature = 50 + load + (i < 2 ? 6 : 0) + (i == 3 ? extra : 0) + static_cast<unsigned>(i + static_cast<int>(load)) % 2;
      g.watts = i == 3 ? watts : 400;
      gpus["0000:0" + std::to_string(i) + ":00.0"] = g;
    }
    return drift.look(gpus, 5);
  };
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(look(0).empty());
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(look(12).empty()) << "a short while is no drift";
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(look(0).empty());
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(look(12, 650).empty()) << "more work makes more heat";
  int found = 0;
  for (int i = 0; i < 300; ++i) {
    const auto out = look(12);
    found += !out.empty();
    ASSERT_LE(out.size(), 1u);
    for (const auto& [device, d] : out) ASSERT_EQ(device, "0000:03:00.0");
  }
  EXPECT_GT(found, 100);
  for (int i = 0; i < 100; ++i) look(0);
  EXPECT_TRUE(look(0).empty());
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
