// SPDX-License-Identifier: Apache-2.0
// How far the run has come, and what its restarts have brought: the budget of restarts, and how launches ended since the last training step.
// A step is progress where no launch before has come as far. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "agent/recovery/policy.h"
#include "agent/run/launch.h"

namespace mm::run {

class Headway {
 public:
  // `used`: restarts and requeues of earlier runs of the job that brought no step.
  explicit Headway(recovery::Budget budget) : budget_(budget) {}

  void launched() { resumed_.reset(); }
  struct Stepped {
    int64_t step;     // steps finished
    int64_t resumed;  // where this launch began
  };
  // What rank 0 reports; a training step, if it is one. A rank may say first which step it resumes from, which is none.
  std::optional<Stepped> progress(const Progress& progress);
  // A launch is given up for another; `end` is how it ended.
  void restarted(const std::optional<recovery::End>& end);

  const recovery::Budget& budget() const { return budget_; }
  const recovery::History& history() const { return history_; }
  int64_t step() const { return step_.value_or(-1); }
  std::optional<int64_t> steps() const { return step_; }

 private:
  recovery::Budget budget_;
  recovery::History history_;
  std::optional<int64_t> step_, furthest_, furthest_at_restart_, resumed_;
  bool reports_loss_ = false;
};

}  // namespace mm::run
