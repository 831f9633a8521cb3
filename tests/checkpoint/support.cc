// SPDX-License-Identifier: Apache-2.0
#include "tests/checkpoint/support.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "checkpoint/box.h"

namespace mm::checkpoint::test {
namespace {

// One exchange after the other: a rank enters the next only when all have left the one before.
class Exchange {
 public:
  explicit Exchange(int size) : slots_(static_cast<size_t>(size)) {}

  std::vector<std::string> all_gather(int rank, const std::string& mine) {
    std::unique_lock lock(mutex_);
    wait(lock, [&] { return !leaving_; });
    slots_[static_cast<size_t>(rank)] = mine;
    if (++arrived_ == slots_.size()) {
      leaving_ = true;
      changed_.notify_all();
    }
    wait(lock, [&] { return leaving_; });
    std::vector<std::string> all = slots_;
    if (--arrived_ == 0) {
      leaving_ = false;
      changed_.notify_all();
    }
    return all;
  }

 private:
  template <class P>
  void wait(std::unique_lock<std::mutex>& lock, P ready) {
    if (!changed_.wait_for(lock, std::chrono::minutes(1), ready))
      throw std::runtime_error("a rank did not come to a collective call");
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> slots_;
  size_t arrived_ = 0;
  bool leaving_ = false;
};

class ThreadGroup : public Group {
 public:
  ThreadGroup(Exchange& exchange, int rank, int size) : exchange_(exchange), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::vector<std::string> all_gather(const std::string& mine) override { return exchange_.all_gather(rank_, mine); }

 private:
  Exchange& exchange_;
  int rank_, size_;
};

int64_t pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

void randomise(Random& random, std::vector<char>& bytes) {
  for (size_t at = 0; at < bytes.size(); at += 8) {
    const uint64_t word = random();
    std::memcpy(&bytes[at], &word, std::min<size_t>(8, bytes.size() - at));
  }
}

std::vector<int64_t> random_cuts(Random& random, int64_t n, int64_t parts) {
  std::vector<int64_t> cuts{0, n};
  for (int64_t i = 1; i < parts; ++i) cuts.push_back(pick(random, 0, n));
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

// A tensor cut into boxes: whole, by flat ranges, or by a grid over up to two dimensions. Some may be empty.
std::vector<Box> random_boxes(Random& random, const Extents& shape, int ranks) {
  const int64_t n = elements(shape);
  const auto kind = pick(random, 0, 3);
  if (kind == 0 || shape.empty()) return {{Extents(shape.size(), 0), shape}};
  if (kind == 1) {
    std::vector<Box> boxes;
    const auto cuts = random_cuts(random, n, ranks);
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      for (Box& b : boxes_of_range(shape, cuts[i], cuts[i + 1])) boxes.push_back(std::move(b));
    }
    return boxes;
  }
  std::vector<Box> boxes{{Extents(shape.size(), 0), shape}};
  for (int64_t round = 1; round < kind; ++round) {
    const auto d = static_cast<size_t>(pick(random, 0, static_cast<int64_t>(shape.size()) - 1));
    std::vector<Box> finer;
    for (const Box& b : boxes) {
      const auto cuts = random_cuts(random, b.shape[d], ranks);
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        Box part = b;
        part.offset[d] += cuts[i];
        part.shape[d] = cuts[i + 1] - cuts[i];
        finer.push_back(std::move(part));
      }
    }
    boxes = std::move(finer);
  }
  return boxes;
}

std::string contents(FILE* file) {
  std::rewind(file);
  std::string out;
  char buffer[4096];
  size_t n = 0;
  while ((n = std::fread(buffer, 1, sizeof buffer, file)) > 0) out.append(buffer, n);
  return out;
}

}  // namespace

void run_ranks(int size, const std::function<void(Group&)>& body) {
  Exchange exchange(size);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          ThreadGroup group(exchange, rank, size);
          body(group);
        } catch (...) {
          errors[static_cast<size_t>(rank)] = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& e : errors) {
    if (e) std::rethrow_exception(e);
  }
}

TemporaryFolder::TemporaryFolder(On on) {
  const bool memory = on == On::memory && ::access("/dev/shm", W_OK) == 0;
  const std::filesystem::path parent = memory ? "/dev/shm" : std::filesystem::temp_directory_path();
  std::string name = (parent / "mm-checkpoint-test.XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp " + name);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

State random_state(Random& random, int tensors, int64_t most) {
  const DType types[] = {DType::float64, DType::float32, DType::bfloat16, DType::int64, DType::uint8};
  State state;
  for (int i = 0; i < tensors; ++i) {
    Tensor t{"layer." + std::to_string(i / 2) + "/weight", i % 2 == 0 ? "param" : "m", types[pick(random, 0, 4)], {}, {}};
    const auto rank = pick(random, 0, 4);
    int64_t room = most;
    for (int64_t d = 0; d < rank; ++d) {
      t.shape.push_back(
          pick(random, 0, 19) == 0 ? 0 : pick(random, 1, std::max<int64_t>(1, std::min<int64_t>(room, rank == 1 ? most : 40))));
      room /= std::max<int64_t>(1, t.shape.back());
    }
    t.bytes.resize(static_cast<size_t>(elements(t.shape)) * size_of(t.dtype));
    randomise(random, t.bytes);
    state.push_back(std::move(t));
  }
  return state;
}

State other_values(State state, uint64_t seed) {
  Random random(seed);
  for (Tensor& t : state) randomise(random, t.bytes);
  return state;
}

Layout random_layout(Random& random, const State& state, int ranks) {
  Layout layout(static_cast<size_t>(ranks));
  for (size_t t = 0; t < state.size(); ++t) {
    for (Box& b : random_boxes(random, state[t].shape, ranks))
      layout[static_cast<size_t>(pick(random, 0, ranks - 1))].push_back({t, std::move(b)});
  }
  return layout;
}

std::vector<char> bytes_of(const Tensor& tensor, const Box& box) {
  const auto width = static_cast<int64_t>(size_of(tensor.dtype));
  std::vector<char> out;
  const int64_t n = elements(box.shape);
  for (int64_t i = 0; i < n; ++i) {
    int64_t rest = i, at = 0, stride = 1;
    for (size_t d = box.shape.size(); d-- > 0;) {
      at += (box.offset[d] + rest % box.shape[d]) * stride;
      rest /= box.shape[d];
      stride *= tensor.shape[d];
    }
    out.insert(out.end(), &tensor.bytes[static_cast<size_t>(at * width)],
               &tensor.bytes[static_cast<size_t>(at * width)] + width);
  }
  return out;
}

Share share_of(const State& state, const std::vector<Placed>& placed) {
  Share share{placed, {}};
  for (const Placed& p : placed) share.buffers.push_back(bytes_of(state[p.tensor], p.box));
  return share;
}

Share empty_share(const State& state, const std::vector<Placed>& placed) {
  Share share{placed, {}};
  for (const Placed& p : placed)
    share.buffers.emplace_back(static_cast<size_t>(elements(p.box.shape)) * size_of(state[p.tensor].dtype), '\x5a');
  return share;
}

std::vector<ConstView> const_views(const State& state, const Share& share) {
  std::vector<ConstView> out;
  for (size_t i = 0; i < share.placed.size(); ++i) {
    const Tensor& t = state[share.placed[i].tensor];
    out.push_back({t.name, t.role, t.dtype, t.shape, share.placed[i].box, share.buffers[i].data()});
  }
  return out;
}

std::vector<View> views(const State& state, Share& share) {
  std::vector<View> out;
  for (size_t i = 0; i < share.placed.size(); ++i) {
    const Tensor& t = state[share.placed[i].tensor];
    out.push_back({t.name, t.role, t.dtype, t.shape, share.placed[i].box, share.buffers[i].data()});
  }
  return out;
}

SaveResult save(const std::string& run, const State& state, const Layout& layout, int64_t step, const Facts& facts) {
  std::vector<SaveResult> results(layout.size());
  RunFolder(run, true);
  run_ranks(static_cast<int>(layout.size()), [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const Share share = share_of(state, layout[rank]);
    results[rank] = RunFolder(run, false).save(group, step, const_views(state, share), facts);
  });
  for (const SaveResult& r : results) {
    EXPECT_EQ(r.committed, results[0].committed);
    EXPECT_EQ(r.error, results[0].error);
    EXPECT_EQ(r.bytes, results[0].bytes);
    EXPECT_NE(r.committed, !r.error.empty());
  }
  return results[0];
}

int64_t load_and_compare(const std::string& run, const std::function<const State&(int64_t)>& states, const Layout& layout,
                         std::vector<std::string>* skipped) {
  std::vector<int64_t> steps(layout.size(), -1);
  run_ranks(static_cast<int>(layout.size()), [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    Share share;
    const State* expected = nullptr;
    const auto loaded = RunFolder(run, false).load_newest(group, [&](int64_t step, const Facts&) {
      expected = &states(step);
      share = empty_share(*expected, layout[rank]);
      return views(*expected, share);
    });
    if (!loaded) return;
    steps[rank] = loaded->step;
    const Share right = share_of(*expected, layout[rank]);
    for (size_t i = 0; i < right.buffers.size(); ++i) {
      EXPECT_TRUE(share.buffers[i] == right.buffers[i])
          << "step " << loaded->step << ", tensor " << (*expected)[right.placed[i].tensor].name;
    }
    if (skipped != nullptr && rank == 0) *skipped = loaded->skipped;
  });
  for (const int64_t s : steps) EXPECT_EQ(s, steps[0]);
  return steps[0];
}

Ran run_command(const std::vector<std::string>& command) {
  std::unique_ptr<FILE, int (*)(FILE*)> out(std::tmpfile(), std::fclose), err(std::tmpfile(), std::fclose);
  std::vector<char*> arguments;
  for (const std::string& a : command) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork");
  if (child == 0) {
    ::dup2(::fileno(out.get()), STDOUT_FILENO);
    ::dup2(::fileno(err.get()), STDERR_FILENO);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), contents(out.get()), contents(err.get())};
}

std::string mm_ckpt() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "mm-ckpt").string();
}

}  // namespace mm::checkpoint::test
