// SPDX-License-Identifier: Apache-2.0
// Work on many threads, results in order: produce(i) runs on any thread, consume(i, result) on the caller's, for i = 0, 1, 2,
// ... At most `window` results wait. The first exception of either stops all and is rethrown.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace mm::data {

template <class Produce, class Consume>
void in_order(size_t count, int threads, size_t window, const Produce& produce, const Consume& consume) {
  using Result = decltype(produce(size_t{}));
  struct Slot {
    std::optional<Result> result;
    std::exception_ptr error;
  };
  std::vector<Slot> slots(window);
  std::mutex mutex;
  std::condition_variable room, ready;
  size_t claimed = 0, consumed = 0;
  bool stopping = false;

  const auto work = [&] {
    std::unique_lock lock(mutex);
    for (;;) {
      room.wait(lock, [&] { return stopping || claimed == count || claimed < consumed + window; });
      if (stopping || claimed == count) return;
      const size_t i = claimed++;
      lock.unlock();
      Slot slot;
      try {
        slot.result.emplace(produce(i));
      } catch (...) {
        slot.error = std::current_exception();
      }
      lock.lock();
      slots[i % window] = std::move(slot);
      ready.notify_one();
    }
  };

  std::vector<std::thread> pool;
  const auto stop = [&] {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    room.notify_all();
    for (std::thread& t : pool) t.join();
  };
  try {
    for (int t = 0; t < threads; ++t) pool.emplace_back(work);
    for (size_t i = 0; i < count; ++i) {
      std::unique_lock lock(mutex);
      Slot& slot = slots[i % window];
      ready.wait(lock, [&] { return slot.result || slot.error; });
      if (slot.error) std::rethrow_exception(slot.error);
      Result result = std::move(*slot.result);
      slot = {};
      consumed = i + 1;
      lock.unlock();
      room.notify_all();
      consume(i, std::move(result));
    }
  } catch (...) {
    stop();
    throw;
  }
  stop();
}

// The CPUs that this process may use.
int usable_cpus();

}  // namespace mm::data
