// SPDX-License-Identifier: Apache-2.0
// Both clocks, in seconds: events tell wall time, waiting goes by the steady one.
#pragma once

#include <limits>

namespace mm::run {

struct Instant {
  double wall = 0, steady = 0;
};
Instant now();

inline constexpr double never = std::numeric_limits<double>::infinity();

}  // namespace mm::run
