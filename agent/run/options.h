// SPDX-License-Identifier: Apache-2.0
// What mm-run is asked to do, from its command line and from the environment of the batch step.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace mm::run {

struct Options {  // as written; unset means: from the environment
  std::optional<int> spares, nodes, ntasks_per_node, max_restarts;
  std::optional<std::string> job_file, config;
  std::vector<std::string> srun_arguments;
  bool json = false;
  std::vector<std::string> command;
};

struct Plan {
  std::string job_id;
  std::string node;                     // where mm-run itself runs
  std::vector<std::string> allocation;  // in Slurm's order
  int nodes = 0;                        // of a launch
  int spares = 0;                       // what the allocation holds beyond them
  int tasks_per_node = 1;
  std::optional<int> cpus_per_task;
  int max_restarts = 0;
  std::string agent_socket;
  bool plugin = false;     // the job was submitted with --mm-train
  int requeues = 0;        // of the job, before this run
  bool may_requeue = true;  // when the ranks have saved and ask for it, or too few nodes are left
  // Fewer nodes that the step can go on with ([recovery] layouts), the most first.
  struct Fit {
    int nodes = 0;
    std::string layout;  // "tp=2,cp=1,pp=1"; empty: that of the job
  };
  std::vector<Fit> fits;
  std::string layout;       // that launches have in place of the job's; empty: the job's
  std::string hang_timeout;  // as the job file has it
  std::string run_folder;  // empty where no job file names one
  bool scavenge = false;   // checkpoints may lie on a node alone
  std::string node_folder;  // where, if the job file says so
  std::vector<std::string> srun_arguments, command;
  bool json = false;

  int tasks() const { return nodes * tasks_per_node; }
};

using Environment = std::function<const char*(const char* name)>;

// How many spares a job that was requeued still has: the agents know, since they may have started it with fewer nodes.
using SparesLeft = std::function<std::optional<int>(const Plan& plan)>;

// Throws a usage Error outside an allocation, in a heterogeneous job, and where the numbers do not fit. Reads the job file and
// the site file.
Plan make_plan(const Options& options, const Environment& environment, const SparesLeft& spares_left);

}  // namespace mm::run
