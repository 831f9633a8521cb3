// SPDX-License-Identifier: Apache-2.0
// How much memory a process may still take, by the limits of its cgroups (v2 and v1) and what the machine has.
#pragma once

#include <cstdint>
#include <string>

namespace mm::data {

// The least of MemAvailable and, of the process's cgroup and each above it, limit less use (less what the kernel would give back
// of the page cache). `root` is where /proc and /sys are. What cannot be read limits nothing; nothing known: the largest int64.
int64_t available_memory(const std::string& root = "");

// Of a loader that shares its node with others: an eighth of its part of what is available, within bounds.
int64_t loader_budget(int64_t available, int loaders_of_node);

}  // namespace mm::data
