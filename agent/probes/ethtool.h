// SPDX-License-Identifier: Apache-2.0
// The counters that the driver of an Ethernet interface keeps for itself, as `ethtool -S` shows them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace mm::agent {

using DriverCounters = std::map<std::string, uint64_t>;

// Empty where the driver has none, or there is no such interface.
DriverCounters driver_counters(const std::string& interface);
// Frames and symbols that the wire damaged, whatever the driver calls them. What forward error correction has mended is ordinary and not among them.
double wire_errors(const DriverCounters& counters);

}  // namespace mm::agent
