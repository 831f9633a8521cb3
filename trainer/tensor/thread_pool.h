// SPDX-License-Identifier: Apache-2.0
// A pool of compute threads. Work is cut into tiles by the caller; which tile computes what never depends on the number of
// threads, so that results are the same bits with 1 thread and with many. Waiting is passive: an idle thread sleeps.
#pragma once

#include <cstdint>
#include <memory>

namespace mm::tensor {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // at least 1; the caller of parallel_for is one of them
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  int threads() const;
  // Calls body(i) for every i in [0, tiles), each once, on any thread; returns when all are done. The first exception is
  // rethrown, and tiles that had not begun by then are left out. One caller at a time, and never from within a body. Allocates
  // nothing.
  template <class Body>
  void parallel_for(int64_t tiles, const Body& body) {
    run(tiles, {&body, [](const void* b, int64_t tile) { (*static_cast<const Body*>(b))(tile); }});
  }

 private:
  struct Work {
    const void* body;
    void (*call)(const void* body, int64_t tile);
  };
  void run(int64_t tiles, Work work);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mm::tensor
