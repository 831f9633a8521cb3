// SPDX-License-Identifier: Apache-2.0
// What a submission states about nodes and tasks. SPANK tells a plugin nothing of that in sbatch and salloc, nor in srun before
// the step exists, so it is read from where Slurm reads it: environment, #SBATCH lines, command line. Pure functions.
//
// Invariant: what is not surely known stays unset, and nothing is ever concluded from it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spank_plugin/option_table.h"

namespace mm::spank {

struct Stated {
  bool nodes_stated = false;  // by a count or a range
  std::optional<int> nodes;   // an exact count
  std::optional<int> tasks, tasks_per_node;
  bool sized_tasks = false;               // CPUs or GPUs a task: where no count is stated, Slurm starts as many tasks as fit
  std::string order_option;               // the last one that chooses nodes or their order, such as "-w"; empty: none
  std::string node_list;                  // of -w, where it is a list of names
  std::string distribution;               // of -m
  int cpus_per_task = 0;                  // as stated; 0: not
  std::string cpu_choice, memory_choice;  // the last option that binds CPUs or memory; empty: none
  bool odd_tasks = false;                 // tasks follow from GPUs, cores or sockets, or nodes are not this allocation's
  bool no_kill = false;                   // --no-kill, with or without =off
  bool heterogeneous = false;             // several components
  bool uncertain = false;                 // an unknown option: what follows may be misread
  std::optional<std::string> mm_train;    // the last value; empty where it has none
  bool wrapped = false;                   // sbatch --wrap
  std::vector<std::string> command;       // the script or program, and its arguments
};

// `words` without the name of the command.
Stated parse_arguments(Client client, const std::vector<std::string>& words);
// The #SBATCH lines of a batch script, as sbatch takes them: up to the first line that is neither comment nor blank.
Stated parse_script(std::string_view text);
using GetEnv = std::function<std::optional<std::string>(const char*)>;
Stated parse_environment(Client client, const GetEnv& get);
// `higher` wins where it states something. Slurm's order: script, then environment, then command line.
Stated merge(Stated lower, const Stated& higher);

// How many tasks and nodes the statements give.
struct Counts {
  std::optional<int> nodes, tasks, tasks_per_node;
};
Counts counts_of(const Stated& stated);

// The words of one line, with quotes and backslashes, up to an unquoted '#'.
std::vector<std::string> split_words(std::string_view line);
// "/proc/self/cmdline" as words.
std::vector<std::string> split_command_line(std::string_view text);

}  // namespace mm::spank
