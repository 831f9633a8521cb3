// SPDX-License-Identifier: Apache-2.0
// The GPUs of this node, through NVIDIA's management library, which is loaded at run time. Reading and judging are two steps: read_gpus() fills
// plain values, judge_gpus() compares them with those of the first reading and the last one.
//
// A GPU is known by its PCI address, never by its index. A GPU that was there and is not any more, or that the library calls lost, is reported
// even though the library cannot name it any longer. What a GPU does not support is absent, and no fault.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "agent/probes/probe.h"

namespace mm::agent {

struct GpuState {
  bool lost = false, needs_reset = false;
  std::optional<uint64_t> corrected, uncorrected;  // ECC errors since the driver was loaded
  std::optional<uint64_t> corrected_ever, uncorrected_ever;
  bool remap_pending = false, remap_failed = false, pages_pending = false;
  std::map<unsigned, bool> links;          // NVLink: active
  std::map<unsigned, uint64_t> link_errors;  // CRC, replays and recoveries
  std::optional<unsigned> pcie_width, pcie_max_width, pcie_generation, pcie_max_generation, pcie_replays;
  uint64_t throttle = 0;
  std::optional<unsigned> temperature, slowdown_temperature;
  std::optional<double> watts;
  std::optional<unsigned> sm_clock;
  std::optional<unsigned> recovery_action;
  unsigned processes = 0;
};

using GpuStates = std::map<std::string, GpuState>;  // by PCI address

class Nvml {
 public:
  // Nothing where the library is not there or its driver is not loaded.
  static std::shared_ptr<Nvml> load(const std::string& library);
  ~Nvml();
  // `doing` gets the name of each call before it is made.
  GpuStates read(const std::function<void(const std::string&)>& doing);
  // Waits for an Xid; nothing at the timeout. For a thread of its own.
  struct XidEvent {
    std::string device;
    int code = 0;
  };
  std::optional<XidEvent> wait_for_xid(unsigned timeout_ms);

 private:
  struct Calls;
  Nvml();
  std::unique_ptr<Calls> calls_;
};

// What is wrong, given the first reading since the agent started and the last one.
ProbeResult judge_gpus(const GpuStates& first, const GpuStates& last, const GpuStates& now);

// Nothing where there are no GPUs.
std::optional<Probe> gpu_probe(const std::shared_ptr<Nvml>& library);

}  // namespace mm::agent
