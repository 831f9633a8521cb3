// SPDX-License-Identifier: Apache-2.0
// Runs another program (Slurm's commands, for the most part) without a shell, with a deadline, and returns what it said.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace mm {

struct CommandResult {
  int exit_code = -1;  // 128 + signal where a signal ended it
  bool timed_out = false;
  std::string out, err;
  bool ok() const { return exit_code == 0 && !timed_out; }
};

// argv[0] is looked up in PATH. `environment` holds extra NAME=VALUE entries. At the deadline the program's process group is killed.
// Throws only where the program cannot be started.
CommandResult run_command(const std::vector<std::string>& argv, std::chrono::milliseconds deadline,
                          const std::vector<std::string>& environment = {});

}  // namespace mm
