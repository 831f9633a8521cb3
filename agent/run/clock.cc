// SPDX-License-Identifier: Apache-2.0
#include "agent/run/clock.h"

#include <ctime>

namespace mm::run {
namespace {

double read_clock(clockid_t clock) {
  timespec t;
  ::clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

}  // namespace

Instant now() {
  return {read_clock(CLOCK_REALTIME), read_clock(CLOCK_MONOTONIC)};
}

}  // namespace mm::run
