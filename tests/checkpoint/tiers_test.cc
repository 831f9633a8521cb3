// SPDX-License-Identifier: Apache-2.0
// Copies nearer than the shared file system: which step loads, from where, after nodes and copies are lost or spoilt. Ranks are
// threads; a node is a folder.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "checkpoint/folder.h"
#include "checkpoint/node_store.h"
#include "checkpoint/step_reader.h"
#include "tests/checkpoint/support.h"

namespace mm::checkpoint::test {
namespace {

namespace fs = std::filesystem;

class TiersTest : public ::testing::Test {
 protected:
  TiersTest() : random_(81), base_(random_state(random_, 6, 3000)), layout_(random_layout(random_, base_, 4)) {
    RunFolder(run_, true);
  }
  // Two ranks a node.
  Tiers tiers_of(int rank, bool peer, int64_t shared_every) const {
    Tiers t;
    t.node_name = "node" + std::to_string(rank / 2);
    t.node_folder = folder_ / t.node_name;
    t.peer = peer;
    t.shared_every = shared_every;
    return t;
  }
  State state(int64_t step) const { return other_values(base_, static_cast<uint64_t>(step)); }

  // Saves steps from..to; the results of rank 0.
  std::vector<SaveResult> save_steps(int64_t from, int64_t to, bool peer, int64_t shared_every) {
    std::vector<SaveResult> out;
    run_ranks(4, [&](Group& group) {
      RunFolder run(run_, false);
      EXPECT_TRUE(run.use_tiers(group, tiers_of(group.rank(), peer, shared_every)).empty());
      run.load_newest(group, [&](int64_t, const Facts&) { return std::vector<View>{}; });
      Saver saver(run, group, {.keep = Keep{2, 0}});
      for (int64_t step = from; step <= to; ++step) {
        const Share share = share_of(state(step), layout_[static_cast<size_t>(group.rank())]);
        EXPECT_TRUE(saver.begin(group, step, const_views(base_, share), {}));
        const std::vector<SaveResult> results = saver.wait();
        if (group.rank() == 0) out.insert(out.end(), results.begin(), results.end());
      }
    });
    return out;
  }

  // Loads on `ranks` ranks of a new layout; the step that loaded with its own values, or -1.
  int64_t load(int ranks, std::vector<std::string>* skipped = nullptr) {
    const Layout layout = random_layout(random_, base_, ranks);
    std::vector<int64_t> steps(static_cast<size_t>(ranks), -1);
    run_ranks(ranks, [&](Group& group) {
      const auto rank = static_cast<size_t>(group.rank());
      RunFolder run(run_, false);
      run.use_tiers(group, tiers_of(group.rank(), true, 1));
      Share share = empty_share(base_, layout[rank]);
      const auto loaded = run.load_newest(group, [&](int64_t, const Facts&) { return views(base_, share); });
      if (!loaded) return;
      const Share right = share_of(state(loaded->step), layout[rank]);
      if (share.buffers == right.buffers) steps[rank] = loaded->step;
      if (skipped != nullptr && rank == 0) *skipped = loaded->skipped;
    });
    for (const int64_t s : steps) EXPECT_EQ(s, steps[0]);
    return steps[0];
  }

  std::vector<std::string> copies(const std::string& node) const {
    std::vector<std::string> out;
    for (const auto& e : fs::recursive_directory_iterator(folder_ / node)) {
      if (e.is_regular_file() && e.path().extension() == ".h5") out.push_back(e.path());
    }
    std::sort(out.begin(), out.end());
    return out;
  }
  static void spoil(const std::string& path) {
    std::fstream f(path, std::ios::in | std::ios::out | std::ios::binary);
    for (uint64_t at = 100; at < fs::file_size(path); at += 997) {
      f.seekp(static_cast<std::streamoff>(at));
      f.put('\x55');
    }
  }

  TemporaryFolder folder_;
  const std::string run_ = folder_ / "run";
  Random random_;
  State base_;
  Layout layout_;
};

TEST_F(TiersTest, TheNewestStepLoadsFromWhereItIs) {
  const std::vector<SaveResult> results = save_steps(1, 5, false, 3);
  ASSERT_EQ(results.size(), 5u);
  for (const SaveResult& r : results) {
    EXPECT_TRUE(r.committed) << r.error;
    EXPECT_TRUE(r.problems.empty()) << r.problems[0];
    EXPECT_EQ(r.tiers, r.step % 3 == 1 ? "node shared" : "node") << r.step;
  }
  EXPECT_EQ(read_manifest(run_ + "/checkpoints/step-0000004", 4).tiers, "node shared");
  const Ran ls = run_command({mm_ckpt(), "ls", run_});
  EXPECT_NE(ls.out.find(" node shared "), std::string::npos) << ls.out << ls.err;
  EXPECT_EQ(copies("node0").size(), 4u);  // two steps of two ranks
  EXPECT_EQ(load(4), 5);
  EXPECT_EQ(load(3), 5);              // other ranks, the same nodes
  fs::remove_all(folder_ / "node1");  // a lost node
  EXPECT_EQ(load(4), 4);              // what the shared file system has
  EXPECT_EQ(load(2), 4);
}

TEST_F(TiersTest, APartnersCopyReplacesALostNode) {
  const std::vector<SaveResult> results = save_steps(1, 3, true, 0);
  for (const SaveResult& r : results) EXPECT_EQ(r.tiers, "node peer") << r.error;
  EXPECT_EQ(copies("node0").size(), 8u);
  EXPECT_TRUE(RunFolder(run_, false).list().empty());
  fs::remove_all(folder_ / "node0");
  EXPECT_EQ(load(4), 3);
  fs::remove_all(folder_ / "node1");
  EXPECT_EQ(load(4), -1);
}

TEST_F(TiersTest, ANodeThatLeavesAndLivesIsScavenged) {
  save_steps(1, 3, false, 0);
  const std::string target = run_ + "/checkpoints/.scavenged";
  spoil(copies("node0").at(0));  // of step 2
  const Ran done = run_command({mm_ckpt(), "scavenge", "--json", "--node-folder", folder_ / "node0", run_});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_NE(done.out.find("\"files\":3"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("\"newest\":3"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("does not hold"), std::string::npos) << done.out;
  fs::remove_all(folder_ / "node0");
  EXPECT_EQ(load(4), 3);
  EXPECT_EQ(load(3), 3);
  EXPECT_TRUE(fs::exists(target));
  save_steps(4, 4, false, 0);
  EXPECT_FALSE(fs::exists(target));
  EXPECT_EQ(load(4), 4);
  EXPECT_EQ(run_command({mm_ckpt(), "scavenge", run_}).status, 2);
}

TEST_F(TiersTest, ACopyThatDoesNotVerifyCostsOnlyTheNextCopy) {
  save_steps(1, 2, true, 1);
  std::vector<std::string> skipped;
  for (const std::string& path : copies("node0")) spoil(path);
  EXPECT_EQ(load(4, &skipped), 2);
  EXPECT_TRUE(skipped.empty());
  for (const std::string& path : copies("node1")) spoil(path);
  EXPECT_EQ(load(4), 2);  // from the shared file system
  fs::remove_all(run_ + "/checkpoints/step-0000002");
  EXPECT_EQ(load(4, &skipped), 1);  // of step 2 no copy holds
  ASSERT_EQ(skipped.size(), 1u);
}

TEST_F(TiersTest, WhatWasGivenUpIsNotLoadedFromANodeEither) {
  save_steps(1, 1, false, 1);
  save_steps(2, 3, false, 0);
  EXPECT_EQ(load(4), 3);
  for (const std::string node : {"node0", "node1"}) fs::rename(folder_ / node, folder_ / ("away-" + node));
  save_steps(2, 2, false, 1);  // continued from step 1, on other nodes
  fs::remove_all(folder_ / "node0");
  fs::remove_all(folder_ / "node1");
  for (const std::string node : {"node0", "node1"}) fs::rename(folder_ / ("away-" + node), folder_ / node);
  std::vector<std::string> skipped;
  EXPECT_EQ(load(4, &skipped), 2);
  ASSERT_FALSE(skipped.empty());
  EXPECT_NE(skipped[0].find("step-0000003: given up"), std::string::npos) << skipped[0];
}

TEST_F(TiersTest, ATierThatCannotBeHadIsLeftOutAndSaidSo) {
  const NodeStore first(folder_ / "mine", "r");
  std::string inside;
  for (const auto& e : fs::directory_iterator(folder_ / "mine")) inside = e.path();
  fs::permissions(inside, fs::perms::all);
  EXPECT_THROW(NodeStore(folder_ / "mine", "r"), Error);
  fs::remove_all(inside);
  fs::create_symlink("/tmp", inside);
  EXPECT_THROW(NodeStore(folder_ / "mine", "r"), Error);
  std::ofstream(folder_ / "file") << "x";
  run_ranks(2, [&](Group& group) {
    RunFolder run(run_, false);
    Tiers t;
    t.node_folder = folder_ / "file/x";
    t.memory_socket = folder_ / "no.sock";
    EXPECT_EQ(run.use_tiers(group, t).size(), 2u);
    Random own(7);
    const Share share = share_of(base_, random_layout(own, base_, 1)[0]);
    const SaveResult r = run.save(group, 1, group.rank() == 0 ? const_views(base_, share) : std::vector<ConstView>{}, {});
    EXPECT_TRUE(r.committed) << r.error;
    EXPECT_EQ(r.tiers, "shared");
  });
}

}  // namespace
}  // namespace mm::checkpoint::test
