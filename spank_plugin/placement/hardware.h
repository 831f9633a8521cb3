// SPDX-License-Identifier: Apache-2.0
// What one node is made of, as far as placement asks: a plain value that hwloc trees (hwloc_tree.h) and NCCL's files
// (nccl_topology.h) are read into, so that everything after is a pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spank_plugin/placement/cpu_set.h"

namespace mm::placement {

struct PciAddress {
  uint32_t domain = 0;
  int bus = 0, device = 0, function = 0;
  friend auto operator<=>(const PciAddress&, const PciAddress&) = default;
};
std::string format_address(const PciAddress& address);  // "0000:34:00.0"
// "0000:34:00.0", also "34:00.0", capitals, and NVML's eight digits of domain. Nothing where it is malformed.
std::optional<PciAddress> parse_address(std::string_view text);

struct OsDevice {
  enum class Kind { gpu, coprocessor, network, fabric, other };
  std::string name, backend;  // backend: CUDA, NVML, RSMI, OpenCL, LevelZero, Display, or empty
  Kind kind = Kind::other;
  bool is_other = false;   // an OpenCL device that is no GPU: the processor, an FPGA
  bool link_down = false;  // a fabric port that says so
};

struct Device {
  std::optional<PciAddress> address;  // none: an OS device that no PCI device carries
  uint16_t pci_class = 0;             // 0x0302
  uint16_t vendor = 0, product = 0;
  std::string name;
  double link = 0;           // GB/s of its PCI link, 0 unknown
  std::vector<int> bridges;  // ids of the bridges above, from the host bridge down; the same id is the same bridge
  bool located = false;      // cpus says where it is (else it hangs at the machine)
  CpuSet cpus, nodes;        // of the nearest ancestor that has CPUs
  int package = -1;          // -1: none or several
  std::vector<OsDevice> os;
};

struct Numa {
  int number = 0;  // the operating system's
  CpuSet cpus;     // its local CPUs
  bool has_cpus =
      false;  // it is the place where these CPUs' memory is; else HBM, a GPU's memory, CXL, persistent memory: never bound
};

struct Core {
  CpuSet cpus;     // its hardware threads
  int cache = -1;  // cores with the same number share the last-level cache
  int package = -1;
};

// Direct bandwidth between two GPUs (NVLink, XGMI), in GB/s.
struct PeerLink {
  PciAddress from, to;
  double bandwidth = 0;
};

struct Hardware {
  std::string source;  // file, or "this machine"
  std::vector<Numa> numa;
  std::vector<std::vector<double>> numa_distance;  // [i][j] as numa; empty: unknown
  std::vector<Core> cores;                         // in the tree's order, so that neighbours share caches
  std::vector<Device> devices;
  std::vector<PeerLink> peer_links;
  CpuSet allowed;  // CPUs that the operating system lets programs use
};

// Sets Numa::has_cpus: every CPU belongs to the smallest node that has it, of equals to the one that is not `special`, then to
// the lowest number.
void find_cpuless(std::vector<Numa>& numa, const std::vector<bool>& special);

}  // namespace mm::placement
