// SPDX-License-Identifier: Apache-2.0
// Whether the run must save and end now because the job's time is over soon, as the node's agent says (ADVICE=end). What is kept in reserve is
// measured: two saves as the longest one so far, two steps as the longest of the last ones, and five seconds. Pure; times are in seconds since 1970.
#pragma once

#include <algorithm>

namespace mm::loop {

class TimeLeft {
 public:
  // `save_estimate`: what a save takes before one has been seen.
  explicit TimeLeft(double save_estimate) : save_(save_estimate) {}

  void ends_at(double end) { end_ = end; }
  void saved(double seconds) {
    save_ = seen_ ? std::max(save_, seconds) : seconds;
    seen_ = true;
  }
  void stepped(double seconds) { step_ = std::max(seconds, 0.9 * step_); }
  double reserve() const { return 5 + 2 * save_ + 2 * step_; }
  bool is_up(double now) const { return end_ > 0 && now + reserve() >= end_; }

 private:
  double end_ = 0, save_, step_ = 0;
  bool seen_ = false;
};

}  // namespace mm::loop
