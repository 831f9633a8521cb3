// SPDX-License-Identifier: Apache-2.0
// From the facts of a task to its environment. Pure; see spank_mm_train(8) for what each variable means.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mm::spank {

struct TaskFacts {
  uint32_t job_id = 0, step_id = 0, restarts = 0;
  int rank = 0, local_rank = 0, tasks = 1, local_tasks = 1;
  int tp = 1, pp = 1, cp = 1;
  std::string stage_speeds;        // of pipeline stages that differ
  int encoder_ranks = 0;           // after those of the layout
  std::string node;                // Slurm's name of this node
  std::vector<std::string> nodes;  // of the step, in the order of their first ranks
  std::string master;              // address of the first of them; empty: its name
  std::string agent_socket;
  std::vector<std::string> interfaces;  // training interfaces that this node has
  std::string visible_gpus;             // CUDA_VISIBLE_DEVICES, empty where there is none
  std::string step_gpus;                // SLURM_STEP_GPUS, itself narrowed where Slurm binds GPUs to tasks
  bool gpu_bind = false;                // it does so
  int node_gpus = 0;                    // SLURM_GPUS_ON_NODE
  int cpus = 0;                         // that the task may use; 0: unknown
};

struct TaskEnvironment {
  std::map<std::string, std::string> values;
  std::string warning;  // for the user, once a node
};
TaskEnvironment task_environment(const TaskFacts& facts);
// Slurm lets each task see a part of the step's GPUs.
bool gpus_narrowed(const TaskFacts& facts);

// A port for the rendezvous: below the ephemeral range, and another one for each step and restart.
int master_port(uint32_t job_id, uint32_t step_id, uint32_t restarts);

// What we export is told from what the user set by a variable that lists our names with a hash of each value. Whoever starts
// something from an environment that was ours (a step from a batch script, a job from a job) first takes what is still ours out
// of it.
inline constexpr const char* exported_variable = "MM_TRAIN_EXPORTED";
std::string list_exported(const std::map<std::string, std::string>& values);
// Names in the list whose value is still the one that was listed.
std::vector<std::string> still_ours(std::string_view list,
                                    const std::function<std::optional<std::string>(const std::string&)>& get);

}  // namespace mm::spank
