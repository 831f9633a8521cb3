// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/pace.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace mm::checkpoint {

void Pace::take(uint64_t bytes) {
  if (rate_ <= 0) return;
  std::chrono::steady_clock::time_point turn;
  {
    const std::lock_guard lock(mutex_);
    turn = std::max(free_at_, std::chrono::steady_clock::now());
    free_at_ = turn + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                          std::chrono::duration<double>(static_cast<double>(bytes) / rate_));
  }
  std::this_thread::sleep_until(turn);  // the rate itself
}

namespace {

void be_last_at_the_disk() noexcept {
  constexpr int of_a_process = 1, class_best_effort = 2, class_shift = 13, lowest = 7;
  ::syscall(SYS_ioprio_set, of_a_process, 0, class_best_effort << class_shift | lowest);
}

}  // namespace

void run_when_idle() noexcept {
  be_last_at_the_disk();
  const sched_param none{};
  ::sched_setscheduler(0, SCHED_IDLE, &none);
}

void yield_to_others() noexcept {
  be_last_at_the_disk();
  const sched_param none{};
  ::sched_setscheduler(0, SCHED_BATCH, &none);
  ::syscall(SYS_setpriority, 0, static_cast<int>(::syscall(SYS_gettid)), 15);
}

}  // namespace mm::checkpoint
