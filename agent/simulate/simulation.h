// SPDX-License-Identifier: Apache-2.0
// Training under faults, event by event, at any size: how much of the time a job trains. The decisions are those of the
// recovery policy (agent/recovery/policy.h) and the interval between saves is that of checkpoint/interval.h, both as the real
// run calls them; what a machine would add are seconds, which are parameters here.
//
// A run is a chain of launches. Within one, `interval` seconds of training and a save follow each other; a save counts once it
// is committed. A fault throws the run back to the newest committed save, and costs the time until the next launch trains. A
// fault that comes while the run is down begins that time anew. Work is counted in seconds of undisturbed training; the result
// is work by time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/simulate/faults.h"

namespace mm::simulate {

// Seconds, where nothing else is said.
struct Costs {
  // Ours.
  double stall = 1;      // training stands still for an asynchronous save
  double flush = 60;     // until it is committed
  double carrier = 0.3;  // until an agent has told of its node's hardware
  double silence = 2.5;  // until two peers have judged that a node is gone
  double death = 0.3;    // until the end of a rank is told
  double hang = 30;      // without progress, learnt from the steps before
  double stop = 0.5;     // to end the ranks of a launch
  double requeue = 2;    // of the job by the agents, where no spare is left
  // Of every way.
  double launch = 10;  // srun, and the processes' groups
  double load = 30;    // the newest checkpoint
  double first_step = 10;
  // Slurm's requeue alone.
  double health_check = 300;  // between checks, and SlurmdTimeout
  double hold = 121;          // until a requeued job may start
  double blocking_save = 60;
  // Without an agent a hang ends with the collective library's own timeout.
  double collective_timeout = 600;
  // A restart inside the allocation by a script.
  double sleep = 60;
};

struct Machine {
  int nodes = 0;   // that train
  int spares = 0;  // that the allocation holds beside them
  double node_mtbf = 0;
};

enum class Way { requeue, scripted, ours };
const char* name_of(Way way);

struct Outcome {
  int64_t faults = 0;
  int64_t unattended = 0;  // after which training went on without a person
  int64_t requeues = 0;
  double interval = 0;
  double trained = 0;  // of the time; what is lost is the three below
  double saving = 0, again = 0, down = 0;
  double recovery_median = 0, recovery_p99 = 0;  // from a fault to the next step
};

// The same seed gives the same faults for every way.
Outcome simulate(const Machine& machine, const Costs& costs, Way way, double days, uint64_t seed);

}  // namespace mm::simulate
