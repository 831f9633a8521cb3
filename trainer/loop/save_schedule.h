// SPDX-License-Identifier: Apache-2.0
// When the next checkpoint is due (checkpoint.every of the job file): after so many steps or epochs, or so many minutes after the
// one before. Where that is "auto": a minute after the start, to measure what a save costs, then after the interval that loses
// least (checkpoint/interval.h; `mm-ckpt interval` explains it), as the last save has measured it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "checkpoint/interval.h"
#include "common/job.h"

namespace mm::loop {

class SaveSchedule {
 public:
  using Clock = std::chrono::steady_clock;

  SaveSchedule(const Job& job, double steps_per_epoch, int nodes, Clock::time_point now);
  // When `done` steps are done, the same on all ranks.
  bool due_after(int64_t done) const;
  // By the clock, which ranks must agree on.
  bool due_at(Clock::time_point now) const;

  // A save has begun, which the training stood still for.
  void begun(Clock::time_point now, double stall_seconds);
  // A save was committed so long after it had begun. Returns, for people, the interval of "auto" where it is new by a fifth.
  std::string committed(double seconds);

 private:
  SaveEvery every_;
  double steps_per_epoch_;
  checkpoint::SaveCosts costs_;
  Clock::time_point begun_;
  double seconds_;  // from one to the next; 0: not by the clock
  double told_ = 0;
};

}  // namespace mm::loop
