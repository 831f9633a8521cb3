// SPDX-License-Identifier: Apache-2.0
// Saves beside the training: the values are those of the call, buffers are bounded, failures are results, and of two writers
// the newer one wins.
#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <mutex>

#include "checkpoint/channel.h"
#include "checkpoint/epochs.h"
#include "checkpoint/folder.h"
#include "checkpoint/step_reader.h"
#include "tests/checkpoint/support.h"

namespace mm::checkpoint::test {
namespace {

namespace fs = std::filesystem;

// Holds operations on a rank file until it is opened.
class Gate {
 public:
  Gate() {
    io::set_hook([this](const io::Operation& o) {
      if (o.op == io::Op::create && o.path.ends_with(".h5")) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return open_; });
      }
      return io::Fault{};
    });
  }
  ~Gate() {
    open();
    io::set_hook({});
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

TEST(Saver, SavesTheValuesOfTheCallAndSkipsWhenBothBuffersAreBusy) {
  Random random(51);
  const State state = random_state(random, 8, 3000);
  const Layout layout = random_layout(random, state, 3);
  const TemporaryFolder folder;
  RunFolder(folder / "run", true);
  Gate gate;
  run_ranks(3, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    RunFolder run(folder / "run", false);
    Saver saver(run, group, {.threads = 2, .keep = Keep{2, 0}});
    saver.reserve(1000);
    Share share = share_of(state, layout[rank]);
    const auto overwrite = [&] {
      for (auto& b : share.buffers) std::fill(b.begin(), b.end(), '\x7f');
    };
    EXPECT_TRUE(saver.begin(group, 1, const_views(state, share), {}));
    overwrite();
    share = share_of(other_values(state, 2), layout[rank]);
    EXPECT_TRUE(saver.begin(group, 2, const_views(state, share), {}));
    overwrite();
    EXPECT_FALSE(saver.begin(group, 3, const_views(state, share), {}));
    EXPECT_EQ(saver.skipped(), 1);
    EXPECT_TRUE(saver.ended().empty());
    group.all_gather("");
    gate.open();
    const std::vector<SaveResult> results = saver.wait();
    ASSERT_EQ(results.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(results[i].committed) << results[i].error;
      EXPECT_EQ(results[i].step, static_cast<int64_t>(i) + 1);
    }
    share = share_of(other_values(state, 4), layout[rank]);
    EXPECT_TRUE(saver.begin(group, 4, const_views(state, share), {}));
    overwrite();
  });  // the last one is not lost
  std::vector<std::string> skipped;
  const State four = other_values(state, 4), two = other_values(state, 2);
  EXPECT_EQ(load_and_compare(
                folder / "run", [&](int64_t) -> const State& { return four; }, layout, &skipped),
            4);
  EXPECT_TRUE(skipped.empty());
  fs::remove_all(folder / "run/checkpoints/step-0000004");
  EXPECT_EQ(load_and_compare(
                folder / "run", [&](int64_t) -> const State& { return two; }, layout),
            2);
  EXPECT_FALSE(fs::exists(folder / "run/checkpoints/step-0000001"));
}

TEST(Saver, AFailureIsAResultOnAllRanksAndTheNextSaveGoesWell) {
  Random random(52);
  const State state = random_state(random, 4, 300);
  const Layout layout = random_layout(random, state, 3);
  const TemporaryFolder folder;
  RunFolder(folder / "run", true);
  io::set_hook([](const io::Operation& o) {
    return io::Fault{
        o.op == io::Op::sync && o.path.find("step-0000001.") != std::string::npos && o.path.ends_with("rank-00002.h5") ? EIO
                                                                                                                       : 0};
  });
  run_ranks(3, [&](Group& group) {
    RunFolder run(folder / "run", false);
    Saver saver(run, group, {});
    const Share share = share_of(state, layout[static_cast<size_t>(group.rank())]);
    EXPECT_TRUE(saver.begin(group, 1, const_views(state, share), {}));
    EXPECT_TRUE(saver.begin(group, 2, const_views(state, share), {}));
    const std::vector<SaveResult> results = saver.wait();
    ASSERT_EQ(results.size(), 2u);
    EXPECT_FALSE(results[0].committed);
    EXPECT_TRUE(results[0].error.ends_with("rank-00002.h5: Input/output error")) << results[0].error;
    EXPECT_TRUE(results[1].committed) << results[1].error;
  });
  io::set_hook({});
}

TEST(Saver, ALateRankIsNamedAndTheConnectionsAreMadeAgain) {
  const State state{{"w", "param", DType::uint8, {10}, std::vector<char>(10, 'w')}};
  const Layout layout = {{{0, {{0}, {4}}}}, {{0, {{4}, {6}}}}};
  const TemporaryFolder folder;
  RunFolder(folder / "run", true);
  std::mutex mutex;
  std::condition_variable changed;
  bool late = true;
  io::set_hook([&](const io::Operation& o) {
    if (o.op == io::Op::create && o.path.ends_with("rank-00001.h5")) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return !late; });
    }
    return io::Fault{};
  });
  run_ranks(2, [&](Group& group) {
    RunFolder run(folder / "run", false);
    Saver saver(run, group, {.deadline = std::chrono::seconds(1)});
    const Share share = share_of(state, layout[static_cast<size_t>(group.rank())]);
    EXPECT_TRUE(saver.begin(group, 1, const_views(state, share), {}));
    if (group.rank() == 0) {
      const std::vector<SaveResult> results = saver.wait();
      ASSERT_EQ(results.size(), 1u);
      EXPECT_NE(results[0].error.find("rank 1 of 2 on "), std::string::npos) << results[0].error;
      EXPECT_NE(results[0].error.find("late"), std::string::npos) << results[0].error;
      const std::lock_guard lock(mutex);
      late = false;
      changed.notify_all();
    }
    saver.wait();
    EXPECT_TRUE(saver.begin(group, 2, const_views(state, share), {}));
    const std::vector<SaveResult> results = saver.wait();
    ASSERT_EQ(results.size(), 1u);
    EXPECT_TRUE(results[0].committed) << results[0].error;
  });
  io::set_hook({});
}

TEST(Epochs, TheNewerWriterWinsAndWhatItGaveUpIsNeverLoaded) {
  const State state{{"w", "param", DType::uint8, {4}, {'a', 'b', 'c', 'd'}}};
  const State newer{{"w", "param", DType::uint8, {4}, {'A', 'B', 'C', 'D'}}};
  const std::vector<Placed> whole = {{0, {{0}, {4}}}};
  const TemporaryFolder folder;
  SelfGroup group;
  RunFolder old_writer(folder / "run", true), new_writer(folder / "run", false);
  const Share share = share_of(state, whole), other = share_of(newer, whole);
  const auto load_into = [&](RunFolder& run, Share& to) {
    return run.load_newest(group, [&](int64_t, const Facts&) { return views(state, to); });
  };
  Share to = empty_share(state, whole);
  EXPECT_FALSE(load_into(old_writer, to));
  for (const int64_t step : {10, 20}) ASSERT_TRUE(old_writer.save(group, step, const_views(state, share), {}).committed);
  ASSERT_EQ(load_into(new_writer, to)->step, 20);
  ASSERT_TRUE(old_writer.save(group, 30, const_views(state, share), {}).committed);  // not fenced yet
  ASSERT_TRUE(new_writer.save(group, 25, const_views(newer, other), {}).committed);
  const SaveResult late = old_writer.save(group, 40, const_views(state, share), {});
  EXPECT_FALSE(late.committed);
  EXPECT_NE(late.error.find("epoch 2 ("), std::string::npos) << late.error;
  RunFolder reader(folder / "run", false);
  const auto loaded = load_into(reader, to);
  EXPECT_EQ(loaded->step, 25);
  EXPECT_EQ(to.buffers[0], newer[0].bytes);
  ASSERT_EQ(loaded->skipped.size(), 1u);
  EXPECT_NE(loaded->skipped[0].find("step-0000030: given up by the writer of epoch 2"), std::string::npos)
      << loaded->skipped[0];
  EXPECT_FALSE(fs::exists(folder / "run/checkpoints/step-0000030/.bad"));
  EXPECT_EQ(reader.retain(group, 5), "");
  EXPECT_FALSE(fs::exists(folder / "run/checkpoints/step-0000030"));
  EXPECT_TRUE(fs::exists(folder / "run/checkpoints/step-0000020"));
}

TEST(Epochs, ManyClaimsAtOnceAreAllDifferentAndOldOnesGo) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "c");
  std::mutex mutex;
  std::set<int64_t> epochs;
  run_ranks(8, [&](Group& group) {
    for (int i = 0; i < 20; ++i) {
      const int64_t epoch = claim_epoch(folder / "c", group.rank() == 0 && i == 3 ? std::optional<int64_t>(7) : std::nullopt);
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(epochs.insert(epoch).second);
    }
  });
  const int64_t newest = *epochs.rbegin();
  EXPECT_GE(newest, 160);
  const std::vector<Claim> claims = list_claims(folder / "c");
  EXPECT_LE(claims.size(), 10u);
  EXPECT_TRUE(given_up(claims, 1, 8));
  EXPECT_FALSE(given_up(claims, 1, 7));
  EXPECT_FALSE(given_up(claims, newest, 8));
  EXPECT_THROW(check_epoch(folder / "c", newest - 1), io::Failure);
  check_epoch(folder / "c", newest);
}

TEST(Channel, CarriesLargeMessagesBothWays) {
  run_ranks(4, [&](Group& group) {
    Channel channel(group, std::chrono::minutes(1));
    const std::string mine(static_cast<size_t>(1 << 20) * static_cast<size_t>(group.rank()),
                           static_cast<char>('a' + group.rank()));
    const std::vector<std::string> all = channel.all_gather(mine);
    ASSERT_EQ(all.size(), 4u);
    for (size_t r = 0; r < 4; ++r) EXPECT_TRUE(all[r] == std::string(r << 20, static_cast<char>('a' + r)));
    EXPECT_EQ(channel.broadcast(group.rank() == 0 ? "x" : ""), "x");
    EXPECT_EQ(channel.gather("y").size(), group.rank() == 0 ? 4u : 0u);
  });
}

}  // namespace
}  // namespace mm::checkpoint::test
