// SPDX-License-Identifier: Apache-2.0
// How the stream works ahead. The samples of this rank form one sequence: those of batch b, then of batch b + 1, ... A window
// of slots lies over it, from the batch that next() will return. Threads claim the next slot after the window's end as long as
// the window's bytes stay within the budget and its end within `batches_ahead`; the batch that next() waits for is claimed in
// any case, so that nothing can block for good. A slot is filled by whichever thread claimed it, and taken out in order: the
// number of threads cannot show in the result. An error travels in its slot and is thrown by the next() that reaches it. A jump
// empties the window; threads still at work on an old slot finish it for nobody.
#include "trainer/data/stream.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <unordered_set>

#include "common/error.h"
#include "common/log.h"
#include "trainer/data/dataset.h"
#include "trainer/data/make_sample.h"
#include "trainer/data/order/order.h"
#include "trainer/data/text/utf8.h"

namespace mm::data {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t budget_bytes = int64_t{256} << 20;
constexpr int64_t batches_ahead = 4;
constexpr int most_halvings = 8;
constexpr auto deadline = std::chrono::minutes(5);  // for one batch; storage that is silent for longer is taken for dead
constexpr int64_t most_in_a_row = 100;              // rejected neighbours
constexpr int64_t most_percent = 10;                // rejected samples of the data set, once they are more than most_in_a_row

struct Slot {
  int64_t batch = 0, dataset_index = 0, bytes = 0;
  bool done = false;
  Sample sample;
  std::exception_ptr error;
};

int thread_count(int asked) {
  if (asked > 0) return asked;
  cpu_set_t set;
  CPU_ZERO(&set);
  const int cpus = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return cpus >= 4 ? 2 : 1;
}

void check(const StreamOptions& o) {
  if (o.ranks < 1 || o.rank < 0 || o.rank >= o.ranks) throw usage_error(fmt::format("data: rank {} of {}", o.rank, o.ranks));
  if (o.global_batch < 1 || o.global_batch % o.ranks != 0)
    throw usage_error(fmt::format("data: a global batch of {} does not divide among {} ranks", o.global_batch, o.ranks));
  check_rule(o.rule);
}

}  // namespace

struct Stream::State {
  explicit State(StreamOptions o)
      : options((check(o), std::move(o))),
        dataset(DatasetOptions{options.shards, options.mix, options.index, options.version}),
        order(dataset.sources(), options.shuffle, options.seed, options.shuffle_window),
        share(options.global_batch / options.ranks),
        most_threads(thread_count(options.threads)) {
    try {
      for (int i = 0; i < most_threads; ++i) threads.emplace_back([this, i] { work(i); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~State() { stop(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void stop() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    work_is_there.notify_all();
    for (std::thread& t : threads) t.join();
    threads.clear();
  }

  // ------------------------------------------------------------ one sample
  // The sample, or the next usable one in the order of the data set.
  Sample make_usable(int64_t first) {
    int64_t tried = 0;
    for (int64_t index = first; tried < most_in_a_row && (tried == 0 || index != first); index = order.replacement(first, tried)) {
      if (std::optional<Sample> sample = try_make(index)) return std::move(*sample);
      ++tried;
    }
    const std::lock_guard lock(mutex);
    throw data_error(
        fmt::format("data: {} samples in a row from {} cannot be used; the last reason: {}", tried, place(first), last_reason));
  }

  std::optional<Sample> try_make(int64_t index) {
    {
      const std::lock_guard lock(mutex);
      if (rejected.contains(index)) return std::nullopt;
    }
    try {
      MadeSample made = make_sample(dataset, index, options.rule);
      if (made.repaired_text) {
        const std::lock_guard lock(mutex);
        repaired.insert(index);
      }
      return std::move(made.sample);
    } catch (const Unusable& reason) {
      reject(index, reason.what());
      return std::nullopt;
    }
  }

  void reject(int64_t index, const std::string& reason) {
    const std::lock_guard lock(mutex);
    if (!rejected.insert(index).second) return;
    last_reason = fmt::format("{}: {}", place(index), reason);
    log::warn("data: {}; the next sample takes its place", last_reason);
    const auto count = static_cast<int64_t>(rejected.size());
    if (count > most_in_a_row && count * 100 > dataset.samples() * most_percent)
      throw data_error(
          fmt::format("data: {} of {} samples cannot be used; the last reason: {}", count, dataset.samples(), last_reason));
  }

  std::string place(int64_t index) const {
    return fmt::format("{}: sample {}", dataset.shard_of(index).path, printable(dataset.key(index)));
  }

  // ------------------------------------------------------------ the threads
  bool may_claim() {
    if (!started) return false;
    if (plan_batch <= wanted) return true;
    if (plan_batch > wanted + (batches_ahead >> level)) return false;
    return window_bytes + estimated_bytes(dataset, order(position_of_plan()), options.rule) <= budget_bytes >> level;
  }
  int64_t position_of_plan() const { return plan_batch * options.global_batch + options.rank * share + plan_index; }

  std::shared_ptr<Slot> claim() {
    auto slot = std::make_shared<Slot>();
    slot->batch = plan_batch;
    slot->dataset_index = order(position_of_plan());
    slot->bytes = estimated_bytes(dataset, slot->dataset_index, options.rule);
    window.push_back(slot);
    window_bytes += slot->bytes;
    if (++plan_index == share) ++plan_batch, plan_index = 0;
    return slot;
  }

  // The first thread always works.
  void work(int number) {
    std::unique_lock lock(mutex);
    for (;;) {
      work_is_there.wait(lock, [&] { return stopping || (number <= (most_threads - 1) >> level && may_claim()); });
      if (stopping) return;
      const std::shared_ptr<Slot> slot = claim();
      lock.unlock();
      Sample sample;
      std::exception_ptr error;
      try {
        sample = make_usable(slot->dataset_index);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      slot->sample = std::move(sample);
      slot->error = error;
      slot->done = true;
      if (slot->batch == wanted) batch_is_ready.notify_one();
    }
  }

  // ------------------------------------------------------------ the consumer
  void jump_to(int64_t batch) {
    window.clear();
    window_bytes = 0;
    plan_batch = batch;
    plan_index = 0;
    started = true;
  }

  bool first_batch_done() const {
    if (static_cast<int64_t>(window.size()) < share) return false;
    return std::all_of(window.begin(), window.begin() + share, [](const std::shared_ptr<Slot>& s) { return s->done; });
  }

  [[noreturn]] void report_late(int64_t batch) const {
    std::string where = "nothing of it was begun";
    for (const std::shared_ptr<Slot>& slot : window)
      if (!slot->done) {
        where = "still at " + place(slot->dataset_index);
        break;
      }
    throw Error(exit_status::internal, fmt::format("data: rank {}: batch {} did not come within {} s: {}", options.rank, batch,
                                                   std::chrono::seconds(deadline).count(), where));
  }

  std::vector<Sample> next(int64_t batch) {
    if (batch < 0) throw std::invalid_argument("Stream::next: a batch below 0");
    const Clock::time_point begin = Clock::now();
    std::unique_lock lock(mutex);
    if (!started || batch != wanted) jump_to(batch);
    wanted = batch;
    work_is_there.notify_all();
    const bool ready = batch_is_ready.wait_for(lock, deadline, [&] { return first_batch_done(); });
    wait_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    if (!ready) report_late(batch);
    std::vector<Sample> samples;
    samples.reserve(static_cast<size_t>(share));
    for (int64_t i = 0; i < share; ++i) {
      const std::shared_ptr<Slot> slot = std::move(window.front());
      window.pop_front();
      window_bytes -= slot->bytes;
      if (slot->error) {
        started = false;  // another call begins anew
        window.clear();
        std::rethrow_exception(slot->error);
      }
      samples.push_back(std::move(slot->sample));
    }
    wanted = batch + 1;
    work_is_there.notify_all();
    return samples;
  }

  const StreamOptions options;
  const Dataset dataset;
  const Order order;
  const int64_t share;
  const int most_threads;

  mutable std::mutex mutex;  // guards all that follows
  std::condition_variable work_is_there, batch_is_ready;
  bool stopping = false, started = false;
  std::deque<std::shared_ptr<Slot>> window;
  int64_t window_bytes = 0;
  int64_t wanted = 0;                      // the batch at the window's front
  int64_t plan_batch = 0, plan_index = 0;  // of the slot after the window's end
  std::unordered_set<int64_t> rejected, repaired;
  std::string last_reason;
  double wait_seconds = 0;
  int level = 0;  // halvings of the threads and the work ahead
  std::vector<std::thread> threads;
};

Stream::Stream(StreamOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Stream::~Stream() = default;

int64_t Stream::samples() const {
  return state_->dataset.samples();
}
std::string Stream::fingerprint() const {
  return state_->dataset.fingerprint();
}
std::vector<Sample> Stream::next(int64_t batch) {
  return state_->next(batch);
}

void Stream::shrink(int level) {
  const std::lock_guard lock(state_->mutex);
  state_->level = std::clamp(level, state_->level, most_halvings);
}

std::vector<Stream::Item> Stream::at(int64_t first, int64_t count) {
  std::vector<Item> items;
  for (int64_t i = first; i < std::min(first + count, samples()); ++i) {
    std::optional<Sample> sample = state_->try_make(i);
    Item item;
    item.usable = sample.has_value();
    if (sample)
      item.sample = std::move(*sample);
    else
      item.sample.key = state_->dataset.key(i);
    items.push_back(std::move(item));
  }
  return items;
}

StreamCounters Stream::counters() const {
  const std::lock_guard lock(state_->mutex);
  StreamCounters counters;
  counters.rejected = static_cast<int64_t>(state_->rejected.size());
  counters.invalid_utf8 = static_cast<int64_t>(state_->repaired.size());
  counters.wait_seconds = state_->wait_seconds;
  return counters;
}

}  // namespace mm::data
