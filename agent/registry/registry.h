// SPDX-License-Identifier: Apache-2.0
// What the agent of a node knows of jobs: the jobs that the node belongs to, and the steps and ranks that run on it. Plain values and
// their JSON form, which survives the agent; a rank that is read back counts only if its process (id and start time) is still there.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/registry/processes.h"
#include "agent/registry/progress.h"
#include "common/key_values.h"

namespace mm::agent {

struct Task {
  int rank = 0;
  int local_rank = 0;
  ProcessId process;
  bool ended = false;
  std::optional<int> status;  // as from wait(2), where Slurm's side has told it
  Progress progress;
};

struct Step {
  std::string id;
  uid_t uid = 0;
  std::vector<std::string> nodes;
  int task_count = 0;          // of the whole step
  double hang_timeout = 0;     // seconds; 0: learnt
  std::optional<ProcessId> daemon;  // its slurmstepd on this node
  bool killed = false;         // its ranks were killed by request: one that registers late is killed at once
  bool hang_reported = false;
  TimePoint registered;        // last registration of a rank; not saved
  std::map<int, Task> tasks;   // of this node, by rank
};

struct Job {
  std::string id;
  uid_t uid = 0;
  std::vector<std::string> nodes;  // of the allocation, in order
  std::string batch_node;          // empty: no batch script (salloc)
  ProcessId batch;                 // the batch script; on the batch node only
  int restarts = 0;                // Slurm's count: tells one run of a requeued job from the next
  int spares = 0;
  bool requeue = true;
  std::map<std::string, Step> steps;

  bool has_live_task() const;
  bool has_node(const std::string& node) const;
};

using Registry = std::map<std::string, Job>;

// The job as VERB=job describes it, and back. Throws an Error that names the missing or wrong key.
Job job_from_message(const KeyValues& message);
KeyValues message_from_job(const Job& job);

struct FoundTask {
  Job* job = nullptr;
  Step* step = nullptr;
  Task* task = nullptr;
  explicit operator bool() const { return task != nullptr; }
};
// By the process itself or one of its ancestors.
FoundTask find_task(Registry& registry, pid_t pid);

std::string registry_to_json(const Registry& registry);
// Throws where the text is not what registry_to_json wrote.
Registry registry_from_json(const std::string& text);

}  // namespace mm::agent
