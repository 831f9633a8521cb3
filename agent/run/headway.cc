// SPDX-License-Identifier: Apache-2.0
#include "agent/run/headway.h"

#include <algorithm>

namespace mm::run {

std::optional<Headway::Stepped> Headway::progress(const Progress& progress) {
  if (!progress.step) return std::nullopt;
  const int64_t step = *progress.step;
  // 0 is also what is known of a launch of which not all ranks have spoken.
  if (!resumed_ && step > 0) resumed_ = progress.trained ? step - 1 : step;
  reports_loss_ = reports_loss_ || progress.trained;
  if (step <= 0 || (reports_loss_ && !progress.trained)) return std::nullopt;
  if (!furthest_at_restart_ || step > *furthest_at_restart_) {
    budget_.used = 0;
    history_.clear();
  }
  step_ = step;
  furthest_ = std::max(step, furthest_.value_or(step));
  return Stepped{step, *resumed_};
}

void Headway::restarted(const std::optional<recovery::End>& end) {
  ++budget_.used;
  if (end) history_.push_back(*end);
  else history_.clear();
  furthest_at_restart_ = furthest_;
}

}  // namespace mm::run
