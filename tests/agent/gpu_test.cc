// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "agent/probes/gpu.h"

namespace mm::agent {
namespace {

// Devices of tests/fake_nvml, through the same ABI as NVIDIA's library.
class Gpus : public testing::Test {
 protected:
  Gpus() {
    ::setenv("FAKE_NVML", path_.c_str(), 1);
    devices("");
    library_ = Nvml::load(std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libnvidia-ml.so.1");
  }
  ~Gpus() override { std::filesystem::remove(path_); }
  // Written beside and renamed: the library reads it at any moment.
  void devices(const std::string& text) {
    std::ofstream(path_ + ".new") << text;
    std::filesystem::rename(path_ + ".new", path_);
  }
  GpuStates read() {
    return library_->read([](const std::string&) {});
  }
  // What is found after `before` when the devices are as in `after`.
  std::string found(const std::string& before, const std::string& after) {
    devices(before);
    const GpuStates first = read();
    devices(after);
    std::string out;
    for (const auto& [key, r] : judge_gpus(first, first, read()).reports) out += std::string(name(r.action)) + " " + r.device + " " + r.code + "\n";
    return out;
  }
  std::string path_ = testing::TempDir() + "fake-nvml-" + std::to_string(::getpid());
  std::shared_ptr<Nvml> library_;
};

TEST_F(Gpus, HealthyOnesGiveNothing) {
  ASSERT_TRUE(library_);
  const std::string fine =
      "0000:1b:00.0 corrected=3 uncorrected=0 corrected_ever=100 width=16 max_width=16 generation=1 max_generation=5 temperature=40 slowdown=90 milliwatts=70000 links=1111 throttle=1\n"
      "0000:43:00.0\n";
  EXPECT_EQ(found(fine, fine), "");
  const GpuStates states = read();
  ASSERT_EQ(states.size(), 2u);
  const GpuState& g = states.at("0000:1b:00.0");
  EXPECT_EQ(g.corrected, 3u);
  EXPECT_EQ(g.links.size(), 4u);
  EXPECT_EQ(g.watts, 70.0);
  EXPECT_FALSE(states.at("0000:43:00.0").corrected) << "what is not supported is absent";
}

TEST_F(Gpus, Faults) {
  ASSERT_TRUE(library_);
  const std::string a = "0000:1b:00.0 ";
  EXPECT_EQ(found(a + "\n0000:43:00.0", "0000:43:00.0"), "drain 0000:1b:00.0 gpu_lost\n");
  EXPECT_EQ(found(a, a + "lost"), "drain 0000:1b:00.0 gpu_lost\n");
  EXPECT_EQ(found(a, a + "reset"), "drain 0000:1b:00.0 reset_required\n");
  EXPECT_EQ(found(a, a + "recovery_action=4"), "drain 0000:1b:00.0 recovery_action\n");
  EXPECT_EQ(found(a, a + "recovery_action=3"), "restart 0000:1b:00.0 recovery_action\n");
  EXPECT_EQ(found(a, a + "recovery_action=0"), "");
  EXPECT_EQ(found(a, a + "remap_failed"), "drain 0000:1b:00.0 remap_failed\n");
  EXPECT_EQ(found(a, a + "remap_pending"), "alert 0000:1b:00.0 remap_pending\n");
  EXPECT_EQ(found(a + "uncorrected=1", a + "uncorrected=2"), "restart 0000:1b:00.0 ecc_uncorrected\n");
  EXPECT_EQ(found(a + "uncorrected=1", a + "uncorrected=1"), "");
  EXPECT_EQ(found(a + "links=111", a + "links=101"), "drain 0000:1b:00.0 nvlink_down\n");
  EXPECT_EQ(found(a + "links=101", a + "links=101"), "");
  EXPECT_EQ(found(a, a + "width=8 max_width=16"), "alert 0000:1b:00.0 pcie_width\n");
  EXPECT_EQ(found(a, a + "generation=3 max_generation=5 milliwatts=600000"), "alert 0000:1b:00.0 pcie_speed\n");
  EXPECT_EQ(found(a, a + "throttle=64 temperature=95 slowdown=90"), "alert 0000:1b:00.0 temperature\nalert 0000:1b:00.0 thermal_slowdown\n");
  EXPECT_EQ(found(a, a + "throttle=128"), "alert 0000:1b:00.0 power_brake\n");
}

TEST_F(Gpus, CorrectedErrorsAreARate) {
  ASSERT_TRUE(library_);
  devices("0000:1b:00.0 corrected=5 replays=1");
  const GpuStates first = read();
  devices("0000:1b:00.0 corrected=9 replays=1");
  const ProbeResult r = judge_gpus(first, first, read());
  EXPECT_TRUE(r.reports.empty());
  ASSERT_EQ(r.corrected.size(), 1u);
  EXPECT_EQ(r.corrected.at({"0000:1b:00.0", "ecc"}), 4);
}

TEST_F(Gpus, XidEvents) {
  ASSERT_TRUE(library_);
  devices("0000:1b:00.0\n0000:43:00.0 xid=79");
  read();
  const auto event = library_->wait_for_xid(5000);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->device, "0000:43:00.0");
  EXPECT_EQ(event->code, 79);
  EXPECT_FALSE(library_->wait_for_xid(40));
}

TEST_F(Gpus, NoLibrary) { EXPECT_FALSE(Nvml::load("libno-such-library.so.1")); }

}  // namespace
}  // namespace mm::agent
