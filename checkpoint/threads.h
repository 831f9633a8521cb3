// SPDX-License-Identifier: Apache-2.0
// The same work on a few threads that share it by a counter.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace mm::checkpoint {

// Runs `work` on so many threads at once, in the calling thread where it is one; rethrows the first exception when all have
// ended.
inline void on_threads(int threads, const std::function<void()>& work) {
  if (threads <= 1) return work();
  std::exception_ptr error;
  std::mutex mutex;
  {
    std::vector<std::jthread> all;
    for (int i = 0; i < threads; ++i) {
      all.emplace_back([&] {
        try {
          work();
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!error) error = std::current_exception();
        }
      });
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace mm::checkpoint
