// SPDX-License-Identifier: Apache-2.0
// The srun of one launch: its arguments, and what it prints about itself. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/recovery/policy.h"
#include "agent/run/options.h"

namespace mm::run {

// --overlap: the old step may not be gone yet when the new one begins. Never --no-kill, which keeps a broken step alive.
//
// Where the plugin is active the nodes come from a hostfile (SLURM_HOSTFILE), one line a task, because srun sorts what
// --nodelist names, and the order of the nodes is the order of the ranks. Without it they come from --nodelist: only the plugin
// hides from the ranks that srun was given a hostfile, which would break an srun of their own.
std::vector<std::string> srun_command(const Plan& plan, const std::vector<std::string>& nodes);

std::string hostfile(const Plan& plan, const std::vector<std::string>& nodes);
// Our own environment with what a launch adds: MM_NODES, MM_RESTARTS, SLURM_PMIX_FENCE=ring unless set, and what the numbers
// name.
std::vector<std::string> srun_environment(const char* const* own, const std::vector<std::string>& nodes, int restarts,
                                          int step_pipe, std::optional<int> hostfile);

// What a line of srun's standard error says, where it is one that matters here.
struct SrunNews {
  std::vector<recovery::RankExit> exits;  // one a rank; without a node's name where several nodes share the line
  recovery::SrunFailure failure = recovery::SrunFailure::none;
  std::string message;              // srun's words, without "srun: error: "
  std::string node;                 // that did not take the launch
  std::optional<std::string> step;  // its step id, where the line names it
};
SrunNews read_srun_line(std::string_view line, const std::string& job_id);

}  // namespace mm::run
