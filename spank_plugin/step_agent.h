// SPDX-License-Identifier: Apache-2.0
// What slurmstepd tells the agent of its node: the job, the step's tasks as they start, and their ends.
//
// A step waits for no agent. All tasks of a node are one message, sent when the last of them is there and before any of them
// runs, so that the agent reads it before a task's own word; that message and the ends of tasks go out without an answer: the
// agent speaks up only where it refuses. The job alone is asked for, as mm-run wants to watch it at once. There is one
// connection for the life of this slurmstepd, made anew where the agent was restarted. After a failure the agent is left alone
// until the next phase (tasks start, tasks end), so that an agent that is away costs a step a connect or two, not one a task.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/agent_client.h"

namespace mm::spank {

struct StartedTask {
  uint32_t rank = 0;
  int local_rank = 0;
  pid_t pid = 0;
};

class StepAgent {
 public:
  explicit StepAgent(std::string socket_path) : socket_path_(std::move(socket_path)) {}

  // Waits for the answer, not for long.
  void ask(const KeyValues& message);
  void tell(KeyValues message);
  // One of `tasks` of this node; with the last of them `step` (what all of them share) and their list are told.
  void started(const KeyValues& step, StartedTask task, size_t tasks);

 private:
  void deliver(const KeyValues& message, bool wants_answer);
  void hear_refusals();

  std::string socket_path_, phase_;
  std::optional<AgentClient> client_;
  bool failed_ = false;
  std::vector<StartedTask> started_;
};

}  // namespace mm::spank
