// SPDX-License-Identifier: Apache-2.0
// Disks that fail and processes that die in the middle of a save: what was committed before stays, and what a save says is
// true.
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <thread>

#include "checkpoint/folder.h"
#include "checkpoint/step_reader.h"
#include "common/files.h"
#include "tests/checkpoint/support.h"

namespace mm::checkpoint::test {
namespace {

namespace fs = std::filesystem;

// Counts operations, and makes number `at` (from 0) fail with `error`, or move `at_most` bytes.
class Injection {
 public:
  Injection(int64_t at, io::Fault fault, bool no_exchange = false) {
    io::set_hook([this, at, fault, no_exchange](const io::Operation& o) {
      const int64_t k = count_++;
      if (k == at) {
        if (o.op == io::Op::remove || o.op == io::Op::list) removal_ = true;
        return fault;
      }
      return io::Fault{no_exchange && o.op == io::Op::exchange ? EINVAL : 0};
    });
  }
  ~Injection() { io::set_hook({}); }
  int64_t count() const { return count_; }
  bool hit_a_removal() const { return removal_; }

 private:
  std::atomic<int64_t> count_ = 0;
  std::atomic<bool> removal_ = false;
};

enum class Before { nothing_of_that_step, that_step, that_step_without_exchange };

// Step 1 is there; step 2 (perhaps there too, with other values) is saved by two ranks under a fault at operation k, for every
// k.
void inject_everywhere(io::Fault fault, Before before) {
  Random random(31);
  const State one = random_state(random, 4, 300), old_two = other_values(one, 32), new_two = other_values(one, 33);
  const Layout layout = random_layout(random, one, 2);
  int failed = 0, committed = 0;
  int64_t operations = 1;
  for (int64_t k = 0; k < operations; ++k) {
    const TemporaryFolder folder;
    const std::string run = folder / "run";
    ASSERT_TRUE(save(run, one, layout, 1).committed);
    if (before != Before::nothing_of_that_step) {
      ASSERT_TRUE(save(run, old_two, layout, 2).committed);
    }
    SaveResult result;
    {
      const Injection injection(k, fault, before == Before::that_step_without_exchange);
      result = save(run, new_two, layout, 2);
      operations = std::max(operations, std::min<int64_t>(injection.count(), 1000));
      if (!injection.hit_a_removal() && fault.error != 0) {
        for (const auto& entry : fs::directory_iterator(RunFolder(run, false).path())) {
          const std::string name = entry.path().filename();
          EXPECT_TRUE(name.starts_with("step-") || name.starts_with("epoch-") || name == "LATEST" || name == ".LATEST.tmp")
              << "k " << k << ": " << name << " is left";
        }
      }
    }
    (result.committed ? committed : failed) += 1;
    if (!result.committed) {
      EXPECT_NE(result.error.find(run), std::string::npos) << "k " << k << ": " << result.error;
    }
    const bool has_two = result.committed || before != Before::nothing_of_that_step;
    const State& two = result.committed ? new_two : old_two;
    EXPECT_EQ(load_and_compare(
                  run, [&](int64_t step) -> const State& { return step == 1 ? one : two; }, layout),
              has_two ? 2 : 1)
        << "k " << k << ": " << result.error;
    ASSERT_FALSE(::testing::Test::HasFailure()) << "k " << k << ", committed " << result.committed << ": " << result.error;
    // and the next save goes well, and cleans up
    ASSERT_TRUE(save(run, one, layout, 3).committed);
    for (const auto& entry : fs::directory_iterator(RunFolder(run, false).path())) {
      const std::string name = entry.path().filename();
      EXPECT_TRUE(name.starts_with("step-") || name.starts_with("epoch-") || name == "LATEST")
          << "k " << k << ": " << name << " is left";
    }
  }
  EXPECT_GT(operations, 25);
  if (fault.error == 0) {
    EXPECT_EQ(failed, 0);
  } else {
    EXPECT_GT(failed, 20);
  }
  EXPECT_GT(committed, 0);  // faults of what does not matter, such as the hint LATEST
}

TEST(Faults, FullDiskAtEveryOperation) {
  inject_everywhere({ENOSPC}, Before::nothing_of_that_step);
}
TEST(Faults, InputOutputErrorAtEveryOperation) {
  inject_everywhere({EIO}, Before::nothing_of_that_step);
}
TEST(Faults, ShortWriteOrReadAtEveryOperation) {
  inject_everywhere({0, 3}, Before::nothing_of_that_step);
}
TEST(Faults, InputOutputErrorWhileAStepIsSavedAgain) {
  inject_everywhere({EIO}, Before::that_step);
}
TEST(Faults, InputOutputErrorWhileAStepIsSavedAgainWithoutExchange) {
  inject_everywhere({EIO}, Before::that_step_without_exchange);
}

TEST(Faults, TheErrorNamesObjectPlaceAndReasonOnEveryRank) {
  Random random(34);
  const State state = random_state(random, 6, 300);
  const TemporaryFolder folder;
  io::set_hook(
      [](const io::Operation& o) { return io::Fault{o.op == io::Op::sync && o.path.ends_with("rank-00002.h5") ? ENOSPC : 0}; });
  const SaveResult r = save(folder / "run", state, random_layout(random, state, 3), 5);
  io::set_hook({});
  EXPECT_FALSE(r.committed);
  EXPECT_TRUE(r.error.starts_with("checkpoint: fsync " + (folder / "run/checkpoints/.step-0000005."))) << r.error;
  EXPECT_TRUE(r.error.ends_with("/rank-00002.h5: No space left on device")) << r.error;
}

void fill_a_small_disk(const std::string& folder) {
  const State small{{"w", "param", DType::uint8, {1000}, std::vector<char>(1000, 's')}};
  const State large{small[0], {"x", "param", DType::uint8, {4 << 20}, std::vector<char>(4 << 20, 'l')}};
  ASSERT_TRUE(save(folder, small, {{{0, {{0}, {1000}}}}, {}}, 1).committed);
  const SaveResult r = save(folder, large, {{{0, {{0}, {1000}}}}, {{1, {{0}, {4 << 20}}}}}, 2);
  EXPECT_FALSE(r.committed);
  EXPECT_TRUE(r.error.ends_with("rank-00001.h5: No space left on device")) << r.error;
  EXPECT_EQ(load_and_compare(folder, [&](int64_t) -> const State& { return small; }, {{{0, {{0}, {1000}}}}}), 1);
}

// Runs `body` in a child that has a file system of its own at `folder`; false where the machine has no mount namespaces.
bool with_own_disk(const std::string& folder, const char* options, const std::function<void()>& body) {
  constexpr int no_namespace = 99;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", folder.c_str(), "tmpfs", 0, options) != 0) {
      ::_exit(no_namespace);
    }
    body();
    std::fflush(stdout);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == no_namespace) return false;
  EXPECT_EQ(status, 0);
  return true;
}

TEST(Faults, ARealFullDisk) {
  const TemporaryFolder folder;
  if (!with_own_disk(folder / "", "size=2m", [&] { fill_a_small_disk(folder / "run"); }))
    GTEST_SKIP() << "skipped: no mount namespace here";
}

TEST(Faults, AReadOnlyFileSystem) {
  const TemporaryFolder folder;
  const State state{{"w", "param", DType::uint8, {3}, {'a', 'b', 'c'}}};
  const Layout layout = {{{0, {{0}, {3}}}}};
  const bool ran = with_own_disk(folder / "", "", [&] {
    ASSERT_TRUE(save(folder / "run", state, layout, 1).committed);
    ASSERT_EQ(::mount(nullptr, (folder / "").c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
    const SaveResult r = save(folder / "run", state, layout, 2);
    EXPECT_FALSE(r.committed);
    EXPECT_NE(r.error.find("Read-only file system"), std::string::npos) << r.error;
    EXPECT_EQ(load_and_compare(
                  folder / "run", [&](int64_t) -> const State& { return state; }, layout),
              1);
    EXPECT_THROW(RunFolder(folder / "other", true), Error);
  });
  if (!ran) GTEST_SKIP() << "skipped: no mount namespace here";
}

TEST(Faults, AFolderThatAnotherUserOwns) {
  if (::geteuid() != 0) GTEST_SKIP() << "skipped: needs root, to become another user";
  const TemporaryFolder folder;
  fs::permissions(folder / "", fs::perms(0755));
  const State state{{"w", "param", DType::uint8, {3}, {'a', 'b', 'c'}}};
  const Layout layout = {{{0, {{0}, {3}}}}};
  ASSERT_TRUE(save(folder / "run", state, layout, 1).committed);
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr uid_t nobody = 65534;
    if (::setuid(nobody) != 0) ::_exit(2);
    const SaveResult r = save(folder / "run", state, layout, 2);
    EXPECT_FALSE(r.committed);
    EXPECT_NE(r.error.find("Permission denied"), std::string::npos) << r.error;
    EXPECT_EQ(load_and_compare(
                  folder / "run", [&](int64_t) -> const State& { return state; }, layout),
              1);
    std::fflush(stdout);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Saves steps from `step` on by a Saver of each rank, until it is killed.
[[noreturn]] void save_beside(const std::string& run, const State& base, const Layout& layout, int64_t step, int tell) {
  run_ranks(2, [&](Group& group) {
    RunFolder folder(run, false);
    Saver saver(folder, group, {.keep = Keep{2, 0}});
    for (int64_t s = step;; ++s) {
      const Share share = share_of(other_values(base, static_cast<uint64_t>(s)), layout[static_cast<size_t>(group.rank())]);
      saver.begin(group, s, const_views(base, share), {});
      for (const SaveResult& r : saver.ended()) {
        if (!r.committed || (group.rank() == 0 && ::write(tell, "x", 1) != 1)) ::_exit(1);
      }
    }
  });
  ::_exit(1);
}

// A writer saves one step after the other, each with values of its own, until it is killed at a random moment; what it
// committed last loads.
TEST(Kill, TheNewestCommittedStepLoads) {
  Random random(static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()));
  const uint64_t seed = random();
  std::printf("seed %lu\n", seed);
  random.seed(seed);
  const State base = random_state(random, 6, 20000);
  const Layout layout = random_layout(random, base, 2), other = random_layout(random, base, 3);
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  RunFolder runs(run, true);
  int64_t newest = 0;
  for (int round = 0; round < 500; ++round) {
    int committed[2];
    ASSERT_EQ(::pipe(committed), 0);
    const UniqueFd told(committed[0]);
    UniqueFd tell(committed[1]);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      if (round % 4 == 1) save_beside(run, base, layout, newest + 1, tell.get());
      for (int64_t step = newest + 1;; ++step) {
        if (!save(run, other_values(base, static_cast<uint64_t>(step)), layout, step).committed) ::_exit(1);
        if (::write(tell.get(), "x", 1) != 1) ::_exit(1);
        run_ranks(2, [&](Group& group) { RunFolder(run, false).retain(group, 2); });
      }
    }
    tell.reset();
    if (round % 2 == 0) {
      pollfd first{told.get(), POLLIN, 0};
      ASSERT_EQ(::poll(&first, 1, 60'000), 1) << "no commit within a minute";
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));  // the random moment itself
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself";
    const std::vector<StepInfo> steps = runs.list();
    if (steps.empty()) continue;
    ASSERT_GE(steps[0].step, newest);
    State expected;
    std::mutex once;
    const auto states = [&](int64_t step) -> const State& {
      const std::lock_guard lock(once);
      if (expected.empty()) expected = other_values(base, static_cast<uint64_t>(step));
      return expected;
    };
    std::vector<std::string> skipped;
    newest = load_and_compare(run, states, other, &skipped);
    ASSERT_EQ(newest, steps[0].step);
    ASSERT_TRUE(skipped.empty()) << skipped[0];
    for (const StepInfo& s : steps) EXPECT_TRUE(verify_step(s.path, s.step, false, [](uint64_t) {}).empty());
  }
  EXPECT_GT(newest, 0);
}

}  // namespace
}  // namespace mm::checkpoint::test
