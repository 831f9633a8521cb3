// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/stream_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "common/error.h"

namespace mm::data {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t batches_ahead = 4;
constexpr size_t least_ahead = 256;  // samples: the window ends after the later of the two
constexpr int most_halvings = 8;
constexpr int64_t nowhere = -1;
constexpr auto deadline = std::chrono::minutes(5);  // for one batch; storage that is silent for longer is taken for dead
constexpr size_t most_read_at_once = 64;
constexpr int64_t bytes_read_at_once = int64_t{8} << 20;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

struct Pipeline::Slot {
  PlannedSample planned;
  int64_t batch = 0;
  std::shared_ptr<void> read;
  bool done = false, dropped = false;
  Sample sample;
  std::exception_ptr error;
};

Pipeline::Pipeline(PipelineSize size, PipelineWork work) : size_(size), work_(std::move(work)) {
  candidate_.position = nowhere;
  try {
    threads_.emplace_back([this] { read_slots(); });
    for (int i = 0; i < size_.threads; ++i) threads_.emplace_back([this, i] { decode_slots(i); });
  } catch (...) {
    stop();
    throw;
  }
}

Pipeline::~Pipeline() { stop(); }

void Pipeline::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  may_read_.notify_all();
  may_decode_.notify_all();
  for (std::thread& t : threads_) t.join();
  threads_.clear();
}

// ---------------------------------------------------------------- plan and read
// Where the positions of a batch cannot be had, one slot holds the reason.
int64_t Pipeline::planned_position() {
  if (plan_positions_.empty()) {
    try {
      plan_positions_ = work_.positions(plan_batch_);
    } catch (...) {
      plan_positions_ = {nowhere};
      candidate_ = {nowhere, 0, 0, 0};
      candidate_error_ = std::current_exception();
    }
  }
  return plan_positions_[plan_index_];
}

bool Pipeline::may_plan() {
  if (!started_) return false;
  if (const int64_t position = planned_position(); candidate_.position != position) {
    candidate_ = {position, 0, 0, 0};
    candidate_error_ = nullptr;
    try {
      candidate_ = work_.plan(position);
    } catch (...) {
      candidate_error_ = std::current_exception();
    }
  }
  if (plan_batch_ <= wanted_) return true;
  if (plan_batch_ > wanted_ + (batches_ahead >> level_) && window_.size() >= least_ahead >> level_) return false;
  return used_ + candidate_.stored_bytes + candidate_.made_bytes <= size_.budget >> level_;
}

Pipeline::SlotPtr Pipeline::plan_one() {
  auto slot = std::make_shared<Slot>();
  slot->planned = candidate_;
  slot->batch = plan_batch_;
  slot->error = candidate_error_;
  slot->done = slot->error != nullptr;
  used_ += candidate_.stored_bytes + candidate_.made_bytes;
  window_.push_back(slot);
  if (++plan_index_ == plan_positions_.size()) {
    ++plan_batch_;
    plan_index_ = 0;
    plan_positions_.clear();
  }
  return slot;
}

void Pipeline::read_slots() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const Clock::time_point begin = Clock::now();
    may_read_.wait(lock, [&] { return stopping_ || may_plan(); });
    if (stopping_) return;
    waits_.read_wait += seconds_since(begin);
    std::vector<SlotPtr> slots;
    std::vector<PlannedSample> planned;
    for (int64_t bytes = 0; may_plan() && slots.size() < most_read_at_once && bytes < bytes_read_at_once;) {
      const SlotPtr slot = plan_one();
      if (slot->done) continue;
      slots.push_back(slot);
      planned.push_back(slot->planned);
      bytes += planned.back().stored_bytes;
    }
    batch_ready_.notify_one();
    reading_ = static_cast<int64_t>(slots.size());
    lock.unlock();
    std::vector<std::shared_ptr<void>> read = work_.read(planned);
    lock.lock();
    reading_ = 0;
    for (size_t i = 0; i < slots.size(); ++i) {
      if (slots[i]->dropped) continue;
      slots[i]->read = std::move(read[i]);
      to_decode_.push_back(slots[i]);
    }
    may_decode_.notify_all();
    lock.unlock();
    read.clear();  // of dropped slots
    lock.lock();
  }
}

// ---------------------------------------------------------------- decode
void Pipeline::decode_slots(int number) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const Clock::time_point begin = Clock::now();
    // The first thread always works.
    may_decode_.wait(lock, [&] { return stopping_ || (!to_decode_.empty() && number <= (size_.threads - 1) >> level_); });
    if (stopping_) return;
    waits_.decode_wait += seconds_since(begin);
    const SlotPtr slot = std::move(to_decode_.front());
    to_decode_.pop_front();
    lock.unlock();
    Sample sample;
    std::exception_ptr error;
    try {
      sample = work_.make(slot->planned);
    } catch (...) {
      error = std::current_exception();
    }
    slot->read.reset();  // nobody else has it now
    lock.lock();
    if (slot->dropped) continue;
    slot->sample = std::move(sample);
    slot->error = error;
    slot->done = true;
    used_ -= slot->planned.stored_bytes;
    slot->planned.stored_bytes = 0;
    may_read_.notify_one();
    if (slot->batch == wanted_) batch_ready_.notify_one();
  }
}

// ---------------------------------------------------------------- batch
void Pipeline::start_at(int64_t batch) {
  for (const SlotPtr& slot : window_) slot->dropped = true;
  window_.clear();
  to_decode_.clear();
  used_ = 0;
  plan_batch_ = batch;
  plan_index_ = 0;
  plan_positions_.clear();
  started_ = true;
}

bool Pipeline::first_batch_done() const {
  if (plan_batch_ <= wanted_) return false;
  for (const SlotPtr& slot : window_) {
    if (slot->batch != wanted_) break;
    if (!slot->done) return false;
  }
  return true;
}

void Pipeline::report_late(int64_t batch) const {
  std::string where = "nothing of it was begun";
  for (const SlotPtr& slot : window_)
    if (!slot->done) {
      where = "still at " + work_.name(slot->planned);
      break;
    }
  throw Error(exit_status::internal, fmt::format("data: rank {}: batch {} did not come within {} s: {}", size_.rank, batch,
                                                 std::chrono::seconds(deadline).count(), where));
}

std::vector<Sample> Pipeline::next(int64_t batch) {
  if (batch < 0) throw std::invalid_argument("Stream::next: a batch below 0");
  const Clock::time_point begin = Clock::now();
  std::unique_lock lock(mutex_);
  if (!started_ || batch != wanted_) start_at(batch);
  wanted_ = batch;
  may_read_.notify_one();
  const bool ready = batch_ready_.wait_for(lock, deadline, [&] { return first_batch_done(); });
  waits_.batch_wait += seconds_since(begin);
  if (!ready) report_late(batch);
  std::vector<Sample> samples;
  while (!window_.empty() && window_.front()->batch == batch) {
    const SlotPtr slot = std::move(window_.front());
    window_.pop_front();
    used_ -= slot->planned.made_bytes;
    if (slot->error) {
      start_at(batch);
      started_ = false;  // another call begins anew
      std::rethrow_exception(slot->error);
    }
    samples.push_back(std::move(slot->sample));
  }
  wanted_ = batch + 1;
  may_read_.notify_one();
  return samples;
}

void Pipeline::shrink(int level) {
  const std::lock_guard lock(mutex_);
  level_ = std::clamp(level, level_, most_halvings);
}

StageCounters Pipeline::counters() const {
  const std::lock_guard lock(mutex_);
  StageCounters c = waits_;
  c.read_queue = reading_;
  c.decode_queue = static_cast<int64_t>(to_decode_.size());
  c.batch_queue = static_cast<int64_t>(std::count_if(window_.begin(), window_.end(), [](const SlotPtr& s) { return s->done; }));
  c.budget = size_.budget >> level_;
  c.used = used_;
  return c;
}

}  // namespace mm::data
