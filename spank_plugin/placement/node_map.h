// SPDX-License-Identifier: Apache-2.0
// The GPUs of a node, and for each its NUMA node, its CPUs, and the NICs from near to far.
//
// Which devices are GPUs: those that a compute backend names (CUDA, NVML, RSMI, LevelZero, OpenCL), and those that none names
// but their PCI class: 0302 (3D), 0380 (other display), 1200 (accelerator), and 0300 (VGA) of a maker of GPUs of which no
// backend names any. Consoles of baseboard controllers and virtual machines, virtual functions and, beside others, a
// processor's own graphics are none. A PCI address counts once, however many OS devices it has. Where no PCI device is known at
// all, OS devices without one are counted, by the backend that has most.
//
// Which devices are NICs: fabric devices (InfiniBand, RoCE, EFA, Omni-Path, Slingshot) whose port is not down; where there is
// none, Ethernet devices that a PCI device carries. Where the site names its training interfaces, those alone.
//
// How near a NIC is: the same PCI switch (fewest bridges first), the same host bridge, the same NUMA node, the same package,
// then by distance of NUMA nodes. Among equals, NICs that fewer GPUs have as their first come first, so that GPUs share a NIC
// only where there are too few.
#pragma once

#include <string>
#include <vector>

#include "spank_plugin/placement/hardware.h"

namespace mm::placement {

struct Nic {
  std::string name;                // as libraries want it: the fabric device before the interface
  std::vector<std::string> names;  // all that it has
  std::string address;             // PCI, or empty
  int numa = -1;
  double bandwidth = 0;   // GB/s of its PCI link, 0 unknown
  std::vector<int> gpus;  // indices of those whose first NIC it is
};

struct Gpu {
  std::string id;  // PCI address, or the OS device's name where there is none
  std::string model, vendor;
  int numa = -1;             // the operating system's number; -1 where the node has no NUMA node with CPUs
  bool located = true;       // else the machine hides where it is, and numa is the first
  CpuSet cpus;               // near it
  std::vector<int> nics;     // indices, nearest first
  std::vector<double> peer;  // GB/s to each GPU of the node over NVLink or XGMI; 0: over PCI
  std::vector<int> near;     // 0 the same switch, 1 the same host bridge, 2 NUMA node, 3 package, 4 farther; to each GPU
};

struct NodeMap {
  std::string source;
  std::vector<Gpu> gpus;  // by PCI address
  std::vector<Nic> nics;
  std::vector<Numa> numa;
  std::vector<std::vector<double>> numa_distance;
  std::vector<Core> cores;
  CpuSet allowed;

  const Numa* numa_of(int number) const;
};

NodeMap map_node(const Hardware& hardware, const std::vector<std::string>& training_interfaces = {});

}  // namespace mm::placement
