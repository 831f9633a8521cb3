// SPDX-License-Identifier: Apache-2.0
// Probes of the node itself, through /proc and /sys. `root` stands in front of every path, for tests.
#pragma once

#include <functional>
#include <optional>
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
// InfiniBand and RoCE ports. A port that was never up is taken as not cabled.
Probe port_probe(const std::string& root = "");
// Ethernet interfaces: speed below the one that they had, flaps, errors.
Probe interface_probe(const std::string& root = "");
// What disks say of themselves, see probes/smart.cc; and where its program is.
Probe smart_probe(const std::string& smartctl, const std::string& root = "");
std::optional<std::string> find_smartctl();
// Whether munged makes credentials.
Probe munge_probe(const std::string& socket);
Probe munge_probe(std::function<void()> make_credential);

// Whether the clock is kept right by NTP or the like, as the kernel knows it. A clock that never was, since the agent started, is not news.
struct ClockState {
  bool synchronised = false;
  double max_error = 0;  // seconds
};
ClockState kernel_clock();
Probe clock_probe(std::function<ClockState()> read = kernel_clock);

}  // namespace mm::agent
