// SPDX-License-Identifier: Apache-2.0
// Losses of a link, from a counter of them: those that follow one another are one flapping, which is news for ten minutes after the last.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace mm::agent {

class Flaps {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds window{600};

  void count(double total, TimePoint now = std::chrono::steady_clock::now()) {
    const bool more = total_ && total > *total_;
    if (more) {
      if (recent(now) == 0) flaps_ = 0;
      flaps_ += static_cast<int64_t>(total - *total_);
      last_ = now;
    }
    total_ = total;
  }
  int64_t recent(TimePoint now = std::chrono::steady_clock::now()) const { return flaps_ > 0 && now - last_ < window ? flaps_ : 0; }

 private:
  std::optional<double> total_;
  int64_t flaps_ = 0;
  TimePoint last_;
};

}  // namespace mm::agent
