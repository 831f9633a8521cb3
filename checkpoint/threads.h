// SPDX-License-Identifier: Apache-2.0
// The same work on a few threads that share it by a counter.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace mm::checkpoint {

// Threads that do one piece of work, the first exception of which is kept.
class Team {
 public:
  void start(int threads, std::function<void()> work) {
    running_ = threads;
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, work] {
        join_in(work);
        const std::lock_guard lock(mutex_);
        --running_;
        ended_.notify_all();
      });
    }
  }
  // Whether they have ended within that time.
  bool wait_for(std::chrono::duration<double> patience) {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, patience, [&] { return running_ == 0; });
  }
  // Does the work in the calling thread as well.
  void join_in(const std::function<void()>& work) {
    try {
      work();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }
  void finish() {
    threads_.clear();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  int running_ = 0;
  std::exception_ptr error_;
  std::vector<std::jthread> threads_;  // last, so that they end first
};

// Runs `work` on so many threads at once, in the calling thread where it is one; rethrows the first exception when all have
// ended.
inline void on_threads(int threads, const std::function<void()>& work) {
  if (threads <= 1) return work();
  Team team;
  team.start(threads, work);
  team.finish();
}

}  // namespace mm::checkpoint
