// SPDX-License-Identifier: Apache-2.0
// How a flush spares those who train: at most so many bytes a second, and behind them for the disk and the CPU.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

namespace mm::checkpoint {

class Pace {
 public:
  // 0: as fast as it goes.
  explicit Pace(double bytes_per_second) : rate_(bytes_per_second), free_at_(std::chrono::steady_clock::now()) {}
  // Returns when `bytes` may be moved. From any thread.
  void take(uint64_t bytes);

 private:
  const double rate_;
  std::mutex mutex_;
  std::chrono::steady_clock::time_point free_at_;
};

// The calling thread gets the lowest priority of the best-effort class for the disk, and that of background work for the CPU.
void yield_to_others() noexcept;
// As that, and it runs only where a core has nothing else to do: the scheduler counts the core as idle, and starts the threads of a
// training step there at once. On cores that are always busy it hardly runs at all.
void run_when_idle() noexcept;

}  // namespace mm::checkpoint
