// SPDX-License-Identifier: Apache-2.0
// One loop is open at a time. `claims` holds its generation in the high half and the number of tiles that nobody has taken in
// the low half; a thread takes a tile by lowering the low half by compare-and-swap, so a thread that wakes late, into another
// generation, cannot take a tile that is not there. Who has taken a tile may read `work` and `tiles`: they change only when all
// tiles of the loop are done.
#include "trainer/tensor/thread_pool.h"

#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace mm::tensor {

struct ThreadPool::State {
  std::vector<std::thread> workers;
  Work work = {};
  int64_t tiles = 0;
  std::atomic<uint64_t> claims{0};
  std::atomic<int> finished{0};    // tiles of the open loop that are done
  std::atomic<int> generation{0};  // what idle workers sleep on
  std::atomic<bool> stop{false};
  std::atomic<bool> failed{false};
  std::mutex error_mutex;
  std::exception_ptr error;

  bool take(int64_t& tile) {
    uint64_t seen = claims.load(std::memory_order_acquire);
    while (static_cast<uint32_t>(seen) != 0) {
      if (claims.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
        tile = tiles - static_cast<int64_t>(static_cast<uint32_t>(seen));
        return true;
      }
    }
    return false;
  }

  void run(int64_t tile) {
    if (failed.load(std::memory_order_relaxed)) return;
    try {
      work.call(work.body, tile);
    } catch (...) {
      std::scoped_lock lock(error_mutex);
      if (!error) error = std::current_exception();
      failed.store(true, std::memory_order_relaxed);
    }
  }

  void work_through() {
    for (int64_t tile; take(tile);) {
      run(tile);
      const int all = static_cast<int>(tiles);
      if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 == all) finished.notify_all();
    }
  }

  void worker() {
    for (;;) {
      const int seen = generation.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) return;
      work_through();
      generation.wait(seen, std::memory_order_acquire);
    }
  }

  void wake() {
    generation.fetch_add(1, std::memory_order_acq_rel);
    generation.notify_all();
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  if (threads < 1) throw std::invalid_argument("thread pool: " + std::to_string(threads) + " threads: at least one is needed");
  for (int i = 1; i < threads; ++i) state_->workers.emplace_back([s = state_.get()] { s->worker(); });
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true, std::memory_order_release);
  state_->wake();
  for (auto& worker : state_->workers) worker.join();
}

int ThreadPool::threads() const {
  return static_cast<int>(state_->workers.size()) + 1;
}

void ThreadPool::run(int64_t tiles, Work work) {
  State& s = *state_;
  if (tiles <= 1 || s.workers.empty()) {
    for (int64_t i = 0; i < tiles; ++i) work.call(work.body, i);
    return;
  }
  if (tiles > std::numeric_limits<int>::max()) throw std::invalid_argument("thread pool: too many tiles");
  s.work = work;
  s.tiles = tiles;
  s.finished.store(0, std::memory_order_relaxed);
  s.failed.store(false, std::memory_order_relaxed);
  const uint64_t next = (s.claims.load(std::memory_order_relaxed) >> 32) + 1;
  s.claims.store(next << 32 | static_cast<uint64_t>(tiles), std::memory_order_release);
  s.wake();
  s.work_through();
  for (int done = s.finished.load(std::memory_order_acquire); done < tiles; done = s.finished.load(std::memory_order_acquire))
    s.finished.wait(done, std::memory_order_acquire);
  if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
}

}  // namespace mm::tensor
