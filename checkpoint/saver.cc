// SPDX-License-Identifier: Apache-2.0
// Saving beside the training. Two buffers, a queue of at most two saves, one thread that flushes them in order: so all ranks
// make the same calls on the channel in the same order, without a word of the training's own ranks.
//
// begin() is collective on the caller's group. The ranks tell each other whether they have a free buffer: one that has none,
// and all skip this save. Where a channel has failed (a rank was late, a connection broke) and no flush is left anywhere, they
// make a new one. A rank that cannot copy its values (no memory) still takes part: its flush reports the reason, and the save
// fails on all ranks alike.
#include <sys/mman.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <thread>

#include "checkpoint/channel.h"
#include "checkpoint/commit.h"
#include "checkpoint/pace.h"
#include "checkpoint/tiers.h"
#include "common/error.h"

namespace mm::checkpoint {
namespace {

constexpr size_t alignment = 64;

size_t aligned(size_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Memory that stays when a smaller snapshot follows.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { release(); }

  // Throws std::bad_alloc. What was in it is lost where it grows. Every page is there afterwards.
  void reserve(size_t bytes) {
    if (bytes <= bytes_) return;
    release();
    void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<char*>(p);
    bytes_ = bytes;
  }
  char* data() { return data_; }

 private:
  void release() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
    data_ = nullptr;
    bytes_ = 0;
  }
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

uint64_t bytes_of(const ConstView& v) {
  return static_cast<uint64_t>(elements(v.box.shape)) * size_of(v.dtype);
}

// Copies what the views show and points them at the copies.
void snapshot(std::vector<ConstView>& views, Buffer& buffer) {
  size_t bytes = 0;
  for (const ConstView& v : views) bytes += aligned(bytes_of(v));
  buffer.reserve(bytes);
  char* at = buffer.data();
  for (ConstView& v : views) {
    const size_t n = bytes_of(v);
    if (n > 0 && v.data != nullptr) {
      std::memcpy(at, v.data, n);
      v.data = at;
    }
    at += aligned(n);
  }
}

struct Job {
  SaveTask task;
  size_t buffer = 0;
};

}  // namespace

struct Saver::State {
  State(RunFolder& run, Group& group, const Options& given)
      : folder(run), options(given), pace(given.bytes_per_second), channel(make_channel(group)) {}

  // None where the ranks cannot reach each other, on all of them alike: the next save tries again, and says why.
  std::unique_ptr<Channel> make_channel(Group& group) {
    try {
      return std::make_unique<Channel>(group, options.deadline);
    } catch (const Error& e) {
      broken_because = e.what();
      return nullptr;
    }
  }

  void flush_all(const std::stop_token& stop);
  SaveResult flush(const Job& job);
  void remove_old(SaveResult& result) const;

  RunFolder& folder;
  const Options options;
  std::string broken_because;
  Pace pace;
  Owners owners;
  SkeletonCache skeletons;

  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_ptr<Channel> channel;  // none after it has failed
  Buffer buffers[2];
  bool busy[2] = {false, false};
  std::deque<Job> queue;
  std::vector<SaveResult> results;
  int64_t skipped = 0, begun = 0;
  std::jthread flusher;  // last, so that it ends first
};

SaveResult Saver::State::flush(const Job& job) {
  SaveResult result;
  result.step = job.task.step;
  if (!channel) {
    result.error = broken_because;
    return result;
  }
  try {
    const WriteOptions write{.threads = options.threads, .background = true, .pace = &pace, .skeletons = &skeletons};
    result = save_step(folder.checkpoints_, *folder.writer_, *channel, folder.near_.get(), job.task, write);
    if (result.committed && job.task.shared && options.keep && channel->rank() == 0) remove_old(result);
  } catch (const std::exception& e) {
    result.error = broken_because = e.what();
    const std::lock_guard lock(mutex);
    channel.reset();
  }
  return result;
}

void Saver::State::remove_old(SaveResult& result) const {
  try {
    retain_steps(folder.checkpoints_, *options.keep);
  } catch (const Error& e) {
    result.problems.emplace_back(e.what());
  }
}

void Saver::State::flush_all(const std::stop_token& stop) {
  yield_to_others();
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex);
      if (!changed.wait(lock, stop, [&] { return !queue.empty(); })) return;
      job = std::move(queue.front());
    }
    SaveResult result = flush(job);
    const std::lock_guard lock(mutex);
    queue.pop_front();
    busy[job.buffer] = false;
    results.push_back(std::move(result));
    changed.notify_all();
  }
}

Saver::Saver(RunFolder& folder, Group& group, const Options& options)
    : state_(std::make_unique<State>(folder, group, options)) {
  state_->flusher = std::jthread([s = state_.get()](const std::stop_token& stop) { s->flush_all(stop); });
}

Saver::~Saver() {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  s.changed.wait(lock, [&] { return s.queue.empty(); });
}

void Saver::reserve(uint64_t bytes) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  for (size_t i = 0; i < 2; ++i) {
    if (!s.busy[i]) s.buffers[i].reserve(bytes);
  }
}

bool Saver::begin(Group& group, int64_t step, const std::vector<ConstView>& tensors, const Facts& facts) {
  State& s = *state_;
  constexpr char is_free = 'f', is_busy = 'b', is_broken = 'x';
  size_t buffer = 0;
  std::string mine;
  {
    const std::lock_guard lock(s.mutex);
    buffer = s.busy[0] ? 1 : 0;
    mine = s.busy[buffer] || (!s.channel && !s.queue.empty()) ? is_busy : s.channel ? is_free : is_broken;
  }
  bool broken = false;
  for (const std::string& theirs : group.all_gather(mine)) {
    if (theirs.empty() || theirs[0] == is_busy) {
      const std::lock_guard lock(s.mutex);
      ++s.skipped;
      return false;
    }
    broken = broken || theirs[0] == is_broken;
  }
  Job job;
  job.task.step = step;
  job.task.facts = facts;
  const int64_t every = s.folder.tiers_.shared_every;
  job.task.shared = s.folder.near_ == nullptr || (every > 0 && s.begun++ % every == 0);
  if (broken) {
    std::unique_ptr<Channel> fresh = s.make_channel(group);
    const std::lock_guard lock(s.mutex);
    s.channel = std::move(fresh);
  }
  job.task.mine = without_replicas(s.owners, group, tensors);
  job.buffer = buffer;
  try {
    snapshot(job.task.mine, s.buffers[buffer]);
  } catch (const std::bad_alloc&) {
    job.task.problem = "checkpoint: snapshot: no memory for the copy";
  }
  const std::lock_guard lock(s.mutex);
  s.busy[buffer] = true;
  s.queue.push_back(std::move(job));
  s.changed.notify_all();
  return true;
}

std::vector<SaveResult> Saver::ended() {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->results, {});
}

std::vector<SaveResult> Saver::wait() {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  s.changed.wait(lock, [&] { return s.queue.empty(); });
  return std::exchange(s.results, {});
}

int64_t Saver::skipped() const {
  const std::lock_guard lock(state_->mutex);
  return state_->skipped;
}

}  // namespace mm::checkpoint
