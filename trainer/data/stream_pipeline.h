// SPDX-License-Identifier: Apache-2.0
// The stages between the order of samples and the training loop, on their own threads: plan, read, decode, batch.
//
// The samples of this rank form one sequence: those of batch b, then of batch b + 1, ..., each batch's as positions() says. A window of slots lies over it, from the
// batch that next() will return. One thread plans the slots after the window's end and reads what they need, many at once; others
// decode, in the order of the plan; slots are taken out in order, so that the number of threads cannot show in the result. An
// error travels in its slot and is thrown by the next() that reaches it. A jump empties the window; threads still at work on an
// old slot finish it for nobody.
//
// Memory: a slot takes its credit, what is read and what is made of it, from one budget before it is read; what was read is given
// back when the sample is made, the rest when the batch is taken. No credit, no plan; but the batch that next() waits for is
// planned in any case, so that nothing can block for good.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "trainer/data/sample.h"

namespace mm::data {

struct PlannedSample {
  int64_t position = 0, sample = 0;
  int64_t stored_bytes = 0, made_bytes = 0;  // in memory, as read and as made
};

// What the stages do. positions and plan are called under the pipeline's lock, the others by many threads at once.
struct PipelineWork {
  std::function<std::vector<int64_t>(int64_t batch)> positions;  // of this rank's samples of a global batch, at least one
  std::function<PlannedSample(int64_t position)> plan;
  // Brings what the samples need into memory; what it returns is held until each is made. Never throws: what it cannot read, make
  // will miss.
  std::function<std::vector<std::shared_ptr<void>>(std::span<const PlannedSample>)> read;
  std::function<Sample(const PlannedSample&)> make;
  std::function<std::string(const PlannedSample&)> name;  // for messages
};

struct PipelineSize {
  int rank = 0;     // for messages
  int threads = 1;  // that decode
  int64_t budget = 0;
};

// The queue before each stage, and how long its threads had nothing to do, in all.
struct StageCounters {
  int64_t read_queue = 0, decode_queue = 0, batch_queue = 0;
  double read_wait = 0, decode_wait = 0, batch_wait = 0;
  int64_t budget = 0, used = 0;  // bytes
};

class Pipeline {
 public:
  Pipeline(PipelineSize size, PipelineWork work);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  std::vector<Sample> next(int64_t batch);
  // At each level, from 1 on, half of the threads, the budget and the work ahead that there were before.
  void shrink(int level);
  StageCounters counters() const;

 private:
  struct Slot;
  using SlotPtr = std::shared_ptr<Slot>;
  void stop();
  int64_t planned_position();
  bool may_plan();
  SlotPtr plan_one();
  void read_slots();
  void decode_slots(int number);
  void start_at(int64_t batch);
  bool first_batch_done() const;
  [[noreturn]] void report_late(int64_t batch) const;

  const PipelineSize size_;
  const PipelineWork work_;

  mutable std::mutex mutex_;  // guards all that follows
  std::condition_variable may_read_, may_decode_, batch_ready_;
  bool stopping_ = false, started_ = false;
  std::deque<SlotPtr> window_;
  std::deque<SlotPtr> to_decode_;
  int64_t reading_ = 0;                  // slots
  int64_t used_ = 0;                     // of the budget
  int64_t wanted_ = 0;                   // the batch at the window's front
  int64_t plan_batch_ = 0;               // of the slot after the window's end
  std::vector<int64_t> plan_positions_;  // of that batch; empty: not asked yet
  size_t plan_index_ = 0;                // in these
  PlannedSample candidate_;              // what comes there, where its position says so
  std::exception_ptr candidate_error_;
  int level_ = 0;
  StageCounters waits_;
  std::vector<std::thread> threads_;
};

}  // namespace mm::data
