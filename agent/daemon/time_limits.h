// SPDX-License-Identifier: Apache-2.0
// When the time of this node's jobs is over, so that their ranks save before. One agent of a job asks Slurm, that of the batch node (of a job
// without a batch script, its first node): once a minute, and every five seconds in the last two minutes, since admins change time limits.
// What is new goes to the agents of all nodes of the job, and from each to its ranks that listen (ADVICE=end, see daemon/advice.h).
#pragma once

#include <map>
#include <string>

#include "agent/daemon/advice.h"
#include "agent/daemon/context.h"

namespace mm::agent {

class TimeLimits {
 public:
  TimeLimits(Context& context, Advice& advice) : c_(context), advice_(advice), timer_(context.loop) {}
  void start();

 private:
  struct Known {
    int run = -1;
    double end = 0;
    Clock::time_point next;
    bool asking = false;
  };
  void look();
  void learnt(const std::string& job, int run, double end);

  Context& c_;
  Advice& advice_;
  Timer timer_;
  std::map<std::string, Known> jobs_;
};

}  // namespace mm::agent
