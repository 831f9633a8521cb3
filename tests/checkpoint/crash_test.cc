// SPDX-License-Identifier: Apache-2.0
// Power loss at every moment of a small save of two ranks: whatever the disk kept of what was not fsynced, the newest step that
// was committed loads with its values, and nothing is ever found damaged.
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/folder.h"
#include "checkpoint/step_reader.h"
#include "tests/checkpoint/crash.h"
#include "tests/checkpoint/support.h"

namespace mm::checkpoint::test {
namespace {

namespace fs = std::filesystem;

class Crash : public ::testing::Test {
 protected:
  Crash() {
    State s;
    s.push_back({"w", "param", DType::float32, {70, 30}, std::vector<char>(8400)});
    s.push_back({"b", "m", DType::bfloat16, {5}, std::vector<char>(10)});
    one_ = other_values(s, 1);
    old_two_ = other_values(s, 2);
    new_two_ = other_values(s, 3);
    layout_ = {{{0, {{0, 0}, {40, 30}}}}, {{0, {{40, 0}, {30, 30}}}, {1, {{0}, {5}}}}};
    fs::create_directory(root_);
  }

  // Loads one state and judges it. `committed`: step 2 with new values is durable.
  void judge(const std::string& run, bool committed, const std::string& what) {
    SelfGroup group;
    std::vector<Placed> whole{{0, {{0, 0}, {70, 30}}}, {1, {{0}, {5}}}};
    Share share = empty_share(one_, whole);
    std::optional<RunFolder::Loaded> loaded;
    try {
      loaded = RunFolder(run, false).load_newest(group, [&](int64_t, const Facts&) { return views(one_, share); });
    } catch (const std::exception& e) {
      FAIL() << what << ": " << e.what();
    }
    ASSERT_TRUE(loaded) << what;
    ASSERT_TRUE(loaded->skipped.empty()) << what << ": " << loaded->skipped[0];
    const auto is = [&](const State& s) { return share.buffers[0] == s[0].bytes && share.buffers[1] == s[1].bytes; };
    if (loaded->step == 1) {
      ASSERT_TRUE(is(one_)) << what;
      ASSERT_FALSE(committed) << what << ": step 2 was committed and is lost";
      return;
    }
    ASSERT_EQ(loaded->step, 2) << what;
    ASSERT_TRUE(is(new_two_) || (!committed && is(old_two_))) << what;
  }

  // After `begin` operations step 1, perhaps also step 2, was durable. Tries all prefixes from there on.
  void try_all(CrashModel& model, size_t begin, int subsets) {
    model.stop();
    const std::function<bool(size_t)> all = [](size_t) { return true; }, none = [](size_t) { return false; };
    const std::function<size_t(size_t)> whole = [](size_t) { return SIZE_MAX; };
    int states = 0;
    const std::string run = folder_ / "state";
    const auto tried = [&](size_t prefix, const std::function<bool(size_t)>& keep, const std::function<size_t(size_t)>& torn,
                           const std::string& what) {
      model.build(prefix, keep, torn, folder_ / "state-root");
      fs::rename(folder_ / "state-root/run", run);
      judge(run, prefix >= durable_, what + " after " + std::to_string(prefix) + " operations");
      fs::remove_all(run);
      fs::remove_all(folder_ / "state-root");
      ++states;
    };
    Random random(5);
    for (size_t prefix = begin; prefix <= model.size(); ++prefix) {
      const std::vector<CrashModel::Pending> pending = model.pending(prefix);
      tried(prefix, none, whole, "nothing kept");
      tried(prefix, all, whole, "all kept");
      const auto is_of_folder = [&](size_t change) {
        for (const auto& p : pending) {
          if (p.change == change) return p.of_folder;
        }
        return false;
      };
      tried(prefix, is_of_folder, whole, "folders without data");
      for (const auto& p : pending) {
        tried(
            prefix, [&](size_t c) { return c != p.change; }, whole, "all but change " + std::to_string(p.change));
        tried(
            prefix, [&](size_t c) { return c == p.change; }, whole, "only change " + std::to_string(p.change));
        if (HasFatalFailure()) return;
      }
    }
    for (int i = 0; i < subsets; ++i) {
      const size_t prefix = begin + random() % (model.size() - begin + 1);
      const auto kept = random() % 5;  // some of few, some of nearly all
      std::map<size_t, bool> choice;
      tried(
          prefix,
          [&](size_t c) {
            const auto [at, is_new] = choice.try_emplace(c, random() % 6 <= kept);
            return at->second;
          },
          [&](size_t) { return random() % 3 == 0 ? random() % 9 * 512 : SIZE_MAX; }, "subset " + std::to_string(i));
      if (HasFatalFailure()) return;
    }
    std::printf("%d states\n", states);
  }

  // The operation after which step 2 with new values must load: the last fsync of the folder in its save.
  void find_durable(const CrashModel& model, size_t begin, size_t end) {
    for (size_t k = begin; k < end; ++k) {
      if (model.syncs_folder(k, "run/checkpoints")) durable_ = k + 1;
    }
  }

  TemporaryFolder folder_;
  const std::string root_ = folder_ / "root", run_ = root_ + "/run";
  State one_, old_two_, new_two_;
  Layout layout_;
  size_t durable_ = SIZE_MAX;
};

TEST_F(Crash, ANewStepAndTheRemovalOfTheOldOne) {
  CrashModel model(root_);
  ASSERT_TRUE(save(run_, one_, layout_, 1).committed);
  const size_t begin = model.size();
  ASSERT_TRUE(save(run_, new_two_, layout_, 2).committed);
  const size_t end = model.size();
  SelfGroup group;
  ASSERT_EQ(RunFolder(run_, false).retain(group, 1), "");
  find_durable(model, begin, end);
  try_all(model, begin, 10000);
}

TEST_F(Crash, AStepThatIsSavedAgain) {
  CrashModel model(root_);
  ASSERT_TRUE(save(run_, one_, layout_, 1).committed);
  ASSERT_TRUE(save(run_, old_two_, layout_, 2).committed);
  const size_t begin = model.size();
  ASSERT_TRUE(save(run_, new_two_, layout_, 2).committed);
  find_durable(model, begin, model.size());
  try_all(model, begin, 1000);
}

// The test of the test: a save that leaves out an fsync is caught.
TEST_F(Crash, AMissingFsyncIsFound) {
  CrashModel model(root_);
  ASSERT_TRUE(save(run_, one_, layout_, 1).committed);
  const size_t begin = model.size();
  ASSERT_TRUE(save(run_, new_two_, layout_, 2).committed);
  model.forget_syncs_of("rank-00001.h5", begin);
  model.stop();
  bool found = false;
  for (size_t prefix = begin; prefix <= model.size() && !found; ++prefix) {
    std::set<size_t> names;
    for (const auto& p : model.pending(prefix)) {
      if (p.of_folder) names.insert(p.change);
    }
    model.build(
        prefix, [&](size_t c) { return names.contains(c); }, [](size_t) { return SIZE_MAX; }, folder_ / "state-root");
    for (const StepInfo& s : list_steps(folder_ / "state-root/run/checkpoints")) {
      found = found || !verify_step(s.path, s.step, false, [](uint64_t) {}).empty();
    }
    fs::remove_all(folder_ / "state-root");
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace mm::checkpoint::test
