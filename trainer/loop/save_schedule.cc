// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/save_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace mm::loop {
namespace {

constexpr double first_auto_save = 60;  // seconds, or this part of the time between failures, whichever is less
constexpr double part_of_mtbf = 0.1;

double job_mtbf(const Job& job, int nodes) {
  const double hours = job.checkpoint.node_mtbf > 0 ? job.checkpoint.node_mtbf : checkpoint::default_node_mtbf_hours;
  return checkpoint::job_mtbf_seconds(hours, nodes);
}

}  // namespace

SaveSchedule::SaveSchedule(const Job& job, double steps_per_epoch, int nodes, Clock::time_point now)
    : every_(save_every(job)),
      steps_per_epoch_(steps_per_epoch),
      begun_(now),
      seconds_(every_.automatic ? std::min(first_auto_save, part_of_mtbf * job_mtbf(job, nodes)) : 60 * every_.minutes) {
  costs_.mtbf = job_mtbf(job, nodes);
}

bool SaveSchedule::due_after(int64_t done) const {
  if (every_.steps > 0) return done % every_.steps == 0;
  if (every_.epochs <= 0) return false;
  const double steps = every_.epochs * steps_per_epoch_;
  return std::floor(static_cast<double>(done) / steps) > std::floor(static_cast<double>(done - 1) / steps);
}

bool SaveSchedule::due_at(Clock::time_point now) const {
  return seconds_ > 0 && std::chrono::duration<double>(now - begun_).count() >= seconds_;
}

void SaveSchedule::begun(Clock::time_point now, double stall_seconds) {
  begun_ = now;
  costs_.stall = stall_seconds;
}

std::string SaveSchedule::committed(double seconds) {
  if (!every_.automatic || costs_.stall <= 0) return "";  // the last save is not made beside the training
  costs_.flush = seconds;
  const checkpoint::Interval best = checkpoint::best_interval(costs_);
  seconds_ = best.seconds;
  if (std::abs(seconds_ - told_) <= 0.2 * told_) return "";
  told_ = seconds_;
  return fmt::format(
      "checkpoints every {:.3g} s: one stops training for {:.2g} s and is committed after {:.2g} s, and the job is taken to fail every "
      "{:.3g} h",
      seconds_, costs_.stall, costs_.flush, costs_.mtbf / 3600);
}

}  // namespace mm::loop
