// SPDX-License-Identifier: Apache-2.0
#include "trainer/tensor/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "trainer/tensor/buffer.h"

namespace mm::tensor {
namespace {

class Threads : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Numbers, Threads, testing::Values(1, 2, 3, 8));

TEST_P(Threads, EveryTileRunsOnceInLoopAfterLoop) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.threads(), GetParam());
  for (int64_t loop = 0; loop < 3000; ++loop) {
    const int64_t tiles = loop * 7 % 23;
    std::vector<int64_t> runs(static_cast<size_t>(tiles));  // plain: tiles are disjoint, and all are done when the loop returns
    pool.parallel_for(tiles, [&](int64_t i) { runs[static_cast<size_t>(i)] += loop + 1; });
    for (int64_t r : runs) ASSERT_EQ(r, loop + 1);
  }
}

TEST_P(Threads, ExceptionComesOutAndThePoolGoesOn) {
  ThreadPool pool(GetParam());
  for (int loop = 0; loop < 200; ++loop) {
    EXPECT_THROW(pool.parallel_for(16,
                                   [&](int64_t i) {
                                     if (i % 5 == 3) throw std::runtime_error("tile");
                                   }),
                 std::runtime_error);
    std::atomic<int> runs{0};
    pool.parallel_for(16, [&](int64_t) { ++runs; });
    ASSERT_EQ(runs, 16);
  }
}

TEST(ThreadPool, TilesRunAtOnce) {
  ThreadPool pool(2);
  std::atomic<int> arrived{0};
  // Each of two tiles waits for the other; one thread alone would never end.
  pool.parallel_for(2, [&](int64_t) {
    if (arrived.fetch_add(1) + 1 == 2) arrived.notify_all();
    for (int n = arrived; n < 2; n = arrived) arrived.wait(n);
  });
  EXPECT_EQ(arrived, 2);
}

TEST(ThreadPool, RefusesNoThread) {
  EXPECT_THROW(ThreadPool(0), std::invalid_argument);
}

TEST(Buffer, GrowsAndStays) {
  Buffer<float> buffer;
  float* first = buffer.need(100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
  EXPECT_EQ(buffer.need(10), first);
  EXPECT_EQ(buffer.need(100), first);
  buffer.need(100000)[99999] = 1;
}

}  // namespace
}  // namespace mm::tensor
