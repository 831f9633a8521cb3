// SPDX-License-Identifier: Apache-2.0
// Probes of the node itself, through /proc and /sys. `root` stands in front of every path, for tests.
#pragma once

#include <string>
#include <vector>

#include "agent/probes/probe.h"

namespace mm::agent {

// Memory that runs out, stalls for lack of it (PSI), load, CPUs slowed down by heat, processes that hang in the kernel (the same one in state D
// for a minute) or that nobody waits for.
Probe host_probe(const std::string& root = "");
// Space and inodes of the file systems that hold `folders`, and PCIe links of NVMe disks.
Probe disk_probe(std::vector<std::string> folders, const std::string& root = "");
// Each folder: a file is written, synced and read back. One that hangs is named in the report of the hang.
Probe path_probe(std::vector<std::string> folders);
// Remote mounts (NFS, Lustre, ...): each is asked for its size. One that hangs is named in the report of the hang.
Probe mount_probe(const std::string& root = "");
// InfiniBand and RoCE ports, and error counters of network interfaces. A port that was never up is taken as not cabled.
Probe port_probe(const std::string& root = "");

}  // namespace mm::agent
