// SPDX-License-Identifier: Apache-2.0
// Processes of this machine, named so that a reused process id is never taken for an earlier process: a process is its id together
// with its start time. Only what a ProcessId still names is ever signalled.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/files.h"

namespace mm::agent {

struct ProcessId {
  pid_t pid = 0;
  uint64_t start = 0;  // clock ticks since boot, field 22 of /proc/PID/stat
  bool operator==(const ProcessId&) const = default;
};

struct ProcessStat {
  pid_t parent = 0;
  char state = '?';  // R S D T t Z X
  uint64_t start = 0;
  std::string name;
};

// What /proc/PID/stat says; the name may hold spaces and brackets.
std::optional<ProcessStat> parse_process_stat(const std::string& text);
std::optional<ProcessStat> process_stat(pid_t pid);
std::optional<ProcessId> identify(pid_t pid);  // nothing where it has ended

// Still there, and no zombie.
bool alive(const ProcessId& process);
// A descriptor that becomes readable when the process ends; empty where it has ended already.
UniqueFd open_process(const ProcessId& process);
// SIGKILL; false where it had ended already.
bool kill_process(const ProcessId& process);

// The process itself, its parent, and so on up to (not with) process 1.
std::vector<pid_t> with_ancestors(pid_t pid);
// The nearest ancestor of that name, such as "slurmstepd".
std::optional<ProcessId> ancestor_named(pid_t pid, const std::string& name);
// Kills a process and all its descendants; stops them first, so that none escapes by forking. Returns how many were killed.
int kill_tree(const ProcessId& root);

}  // namespace mm::agent
