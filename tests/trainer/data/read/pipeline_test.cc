// SPDX-License-Identifier: Apache-2.0
// The pipeline with work that counts: what is in memory, and what comes out.
#include "trainer/data/stream_pipeline.h"

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "tests/trainer/data/support.h"

namespace mm::data {
namespace {

using namespace test;

// Counts what its samples hold. Sample n has n % 1000 + 1 KiB stored and 3 KiB made, but every `large`-th.
struct Work {
  std::atomic<int64_t> stored = 0, made = 0, most = 0, plans = 0;
  int64_t large = 0, batch = 8, share = 8;

  int64_t stored_bytes(int64_t n) const { return large > 0 && n % large == 0 ? 50'000 : n % 1000 + 1024; }
  void add(std::atomic<int64_t>& what, int64_t by) {
    what += by;
    const int64_t now = stored + made;
    for (int64_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
  }
  PipelineWork work() {
    PipelineWork w;
    w.positions = [this](int64_t b) {
      std::vector<int64_t> positions;
      for (int64_t i = 0; i < share; ++i) positions.push_back(b * batch + i);
      return positions;
    };
    w.plan = [this](int64_t position) {
      ++plans;
      if (position == 777) throw data_error("plan 777");
      return PlannedSample{position, position, stored_bytes(position), 3 * 1024};
    };
    w.read = [this](std::span<const PlannedSample> samples) {
      std::vector<std::shared_ptr<void>> read;
      for (const PlannedSample& s : samples) {
        const int64_t bytes = stored_bytes(s.sample);
        add(stored, bytes);
        read.push_back(std::shared_ptr<void>(nullptr, [this, bytes](void*) { stored -= bytes; }));
      }
      return read;
    };
    w.make = [this](const PlannedSample& s) {
      if (s.sample == 888) throw data_error("make 888");
      add(made, 3 * 1024);
      Sample sample;
      sample.key = std::to_string(s.sample);
      return sample;
    };
    w.name = [](const PlannedSample& s) { return std::to_string(s.sample); };
    return w;
  }
};

std::vector<std::string> keys(const std::vector<Sample>& samples) {
  std::vector<std::string> out;
  for (const Sample& s : samples) out.push_back(s.key);
  return out;
}

TEST(Pipeline, AConsumerThatStallsFindsTheBudgetKept) {
  for (const int threads : {1, 4}) {
    Work work;
    const int64_t budget = 200'000;
    work.share = 4;
    Pipeline pipeline({.threads = threads, .budget = budget}, work.work());
    work.made -= 4 * 3 * 1024;  // what the consumer has been given is his
    ASSERT_EQ(keys(pipeline.next(0)), (std::vector<std::string>{"0", "1", "2", "3"}));
    // Settled: nothing is left to do without a consumer.
    StageCounters counters;
    do counters = pipeline.counters();
    while (counters.read_queue > 0 || counters.decode_queue > 0 || counters.batch_queue == 0 || counters.used + 5 * 1024 < budget);
    EXPECT_LE(counters.used, budget);
    EXPECT_LE(work.most, budget + 4 * (4 * 1024));  // the batch that was asked for is read in any case
    for (int64_t b = 1; b < 50; ++b) ASSERT_EQ(pipeline.next(b).front().key, std::to_string(b * 8));
  }
}

TEST(Pipeline, WhatIsLargerThanTheBudgetComesAllTheSame) {
  Work work;
  work.large = 5;
  work.batch = work.share = 4;
  Pipeline pipeline({.threads = 2, .budget = 10'000}, work.work());
  for (int64_t b = 0; b < 40; ++b) ASSERT_EQ(pipeline.next(b).back().key, std::to_string(b * 4 + 3));
}

TEST(Pipeline, ErrorsComeInTheirTurnAndAJumpPassesThem) {
  Work work;
  work.batch = work.share = 10;
  Pipeline pipeline({.threads = 3, .budget = 1 << 20}, work.work());
  for (int64_t b = 70; b < 77; ++b) ASSERT_EQ(pipeline.next(b).front().key, std::to_string(b * 10));
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(error_of(exit_status::data, [&] { pipeline.next(77); }), "plan 777");
    EXPECT_EQ(error_of(exit_status::data, [&] { pipeline.next(88); }), "make 888");
  }
  EXPECT_EQ(pipeline.next(78).front().key, "780");
  pipeline.shrink(20);
  EXPECT_EQ(pipeline.next(100).front().key, "1000");
  EXPECT_EQ(pipeline.next(3).front().key, "30");
  EXPECT_EQ(pipeline.next(4).front().key, "40");
}

}  // namespace
}  // namespace mm::data
