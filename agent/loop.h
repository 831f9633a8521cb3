// SPDX-License-Identifier: Apache-2.0
// The daemon's event loop: one thread runs every handler, so that nothing in the agent needs a lock. What may block (Slurm's commands,
// munge, disks, connects) runs in small worker pools, and its result comes back into the loop.
//
// Invariants: handlers run only in run(), one at a time. A handler that throws is logged and nothing else is lost. Jobs given to
// one pool of one thread run in the order given. Timer and FdWatch stop when destroyed, also inside their own handler.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

namespace boost::asio {
class io_context;
}

namespace mm::agent {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class Loop {
 public:
  using Action = std::function<void()>;
  // A job is run in a worker and returns what the loop does afterwards (or nothing).
  using Job = std::function<Action()>;
  enum class Pool { slurm, probe, encode, decode, disk };

  Loop();
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void run();
  void stop();
  void post(Action action);  // from any thread
  void work(Pool pool, Job job);
  size_t waiting(Pool pool) const;  // jobs of the pool that have not ended
  void after(milliseconds delay, Action action);
  void on_signals(const std::vector<int>& signals, std::function<void(int)> handler);

  struct Core;
  Core& core() { return *core_; }
  boost::asio::io_context& io();  // for what speaks a protocol of Boost's

 private:
  void wait_for_signal(std::shared_ptr<std::function<void(int)>> handler);
  std::unique_ptr<Core> core_;
};

class Timer {
 public:
  explicit Timer(Loop& loop);
  ~Timer();
  Timer(Timer&&) noexcept;
  Timer& operator=(Timer&&) noexcept;
  void start(milliseconds delay, Loop::Action action);   // once; replaces an earlier start
  void repeat(milliseconds period, Loop::Action action);
  void cancel();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Calls the handler whenever the descriptor is readable (or writable). Does not own the descriptor, which must outlive the watch.
class FdWatch {
 public:
  enum class For { read, write };
  FdWatch() = default;
  FdWatch(Loop& loop, int fd, Loop::Action action, For what = For::read);
  ~FdWatch();
  FdWatch(FdWatch&&) noexcept;
  FdWatch& operator=(FdWatch&&) noexcept;
  explicit operator bool() const { return state_ != nullptr; }

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace mm::agent
