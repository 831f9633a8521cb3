// SPDX-License-Identifier: Apache-2.0
// How often to save. A save costs `cost` seconds of training, a failure on average half an interval of work that is done again
// and the restart. Daly's higher-order estimate of the interval that loses least (J. T. Daly, "A higher order estimate of the
// optimum checkpoint interval for restart dumps", Future Generation Computer Systems 22, 2006), of which Young's sqrt(2 C M) is
// the first term.
#pragma once

namespace mm::checkpoint {

struct SaveCosts {
  double stall = 0;    // seconds that training stands still for a save
  double flush = 0;    // seconds until the save is committed; no interval is shorter
  double restart = 0;  // seconds from a failure to the first new step
  double mtbf = 0;     // seconds between failures of the whole job
};
struct Interval {
  double seconds = 0;  // of training between two saves
  double young = 0;    // for comparison
  double lost = 0;     // expected part of the time that is lost to saves, work done again and restarts
};
// All in seconds; mtbf > 0, the others >= 0. Without any cost the interval is the flush itself.
Interval best_interval(const SaveCosts& costs);

// Failures of the nodes are independent: a job of n nodes fails n times as often. Source of the default: 419 interruptions of
// 16,384 GPUs in 54 days (The Llama 3 Herd of Models, 2024, section 3.3.4), eight GPUs a node.
inline constexpr double default_node_mtbf_hours = 54.0 * 24 * 16384 / 8 / 419;
double job_mtbf_seconds(double node_mtbf_hours, int nodes);

}  // namespace mm::checkpoint
