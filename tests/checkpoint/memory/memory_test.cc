// SPDX-License-Identifier: Apache-2.0
// Checkpoints in memory that the agent keeps: they outlive the ranks, go to their owner only, and end with the job.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

#include "agent/local/memory_keeper.h"
#include "common/error.h"
#include "common/memory_keeper.h"
#include "tests/checkpoint/support.h"

namespace mm::checkpoint::test {
namespace {

constexpr uint64_t budget = 4 << 20;

// The agent's keeper on a loop of its own. Job 7 is this user's, job 8 another's.
class Keeper {
 public:
  explicit Keeper(const std::string& path) {
    std::promise<void> ready;
    thread_ = std::jthread([&, path] {
      agent::MemoryKeeper keeper(loop_, path, budget, [](const std::string& job) -> std::optional<uid_t> {
        if (job == "7") return ::getuid();
        if (job == "8") return ::getuid() + 1;
        return std::nullopt;
      });
      keeper_ = &keeper;
      loop_.post([&] { ready.set_value(); });
      loop_.run();
    });
    ready.get_future().wait();
  }
  ~Keeper() { loop_.stop(); }
  void end_job(const std::string& job) {
    std::promise<void> done;
    loop_.post([&] {
      keeper_->job_ended(job);
      done.set_value();
    });
    done.get_future().wait();
  }

 private:
  agent::Loop loop_;
  agent::MemoryKeeper* keeper_ = nullptr;
  std::jthread thread_;
};

UniqueFd memory(const std::string& content, bool sealed = true) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (::pwrite(fd.get(), content.data(), content.size(), 0) != static_cast<ssize_t>(content.size()))
    throw std::runtime_error("pwrite");
  if (sealed && ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    throw std::runtime_error("seal");
  return fd;
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Memory, IsKeptForItsOwnerAndEndsWithTheJob) {
  const TemporaryFolder folder;
  const std::string path = folder / "memory.sock";
  Keeper keeper(path);
  {
    MemoryKeeperClient client(path, "7");
    client.put("a/1", memory("first").get());
    client.put("a/2", memory("second").get());
    client.put("a/1", memory("again").get());
  }
  MemoryKeeperClient client(path, "7");
  EXPECT_EQ(client.list(), (std::vector<std::string>{"a/1", "a/2"}));
  const UniqueFd fd = client.get("a/1");
  char content[6] = {};
  ASSERT_EQ(::pread(fd.get(), content, 5, 0), 5);
  EXPECT_STREQ(content, "again");
  EXPECT_LT(::pwrite(fd.get(), "x", 1, 0), 0);
  client.drop("a/2");
  EXPECT_EQ(client.list().size(), 1u);
  EXPECT_NE(message_of([&] { client.get("a/2"); }).find("nothing is kept"), std::string::npos);
  EXPECT_NE(message_of([&] { client.put("b", memory("x", false).get()); }).find("sealed"), std::string::npos);
  EXPECT_NE(message_of([&] {
              client.put("b", fd.get());
              client.put("c", ::open("/dev/null", O_RDONLY | O_CLOEXEC));
            }).find("sealed"),
            std::string::npos);
  EXPECT_NE(message_of([&] { client.put("d", memory(std::string(budget, 'x')).get()); }).find("are allowed"),
            std::string::npos);
  for (const char* job : {"8", "9", ""}) {
    MemoryKeeperClient other(path, job);
    EXPECT_NE(message_of([&] { other.list(); }).find("is not known here as one of user"), std::string::npos);
  }
  keeper.end_job("7");
  EXPECT_TRUE(client.list().empty());
}

TEST(Memory, ANewProcessLoadsTheStepThatTheOldOneLeftThere) {
  Random random(91);
  const State base = random_state(random, 6, 3000);
  const Layout layout = random_layout(random, base, 2);
  const TemporaryFolder folder;
  const std::string path = folder / "memory.sock";
  Keeper keeper(path);
  RunFolder(folder / "run", true);
  Tiers tiers;
  tiers.memory_socket = path;
  tiers.job = "7";
  tiers.shared_every = 0;
  const auto state = [&](int64_t step) { return other_values(base, static_cast<uint64_t>(step)); };
  run_ranks(2, [&](Group& group) {
    RunFolder run(folder / "run", false);
    EXPECT_TRUE(run.use_tiers(group, tiers).empty());
    Saver saver(run, group, {});
    for (int64_t step = 1; step <= 4; ++step) {
      const Share share = share_of(state(step), layout[static_cast<size_t>(group.rank())]);
      EXPECT_TRUE(saver.begin(group, step, const_views(base, share), {}));
      for (const SaveResult& r : saver.wait())
        EXPECT_EQ(r.tiers, "memory") << r.error << (r.problems.empty() ? "" : r.problems[0]);
    }
  });
  EXPECT_EQ(MemoryKeeperClient(path, "7").list().size(), 6u);  // two steps of two files and a manifest
  const auto load = [&](int ranks) {
    const Layout other = random_layout(random, base, ranks);
    std::atomic<int64_t> step = -1;
    run_ranks(ranks, [&](Group& group) {
      const auto rank = static_cast<size_t>(group.rank());
      RunFolder run(folder / "run", false);
      run.use_tiers(group, tiers);
      Share share = empty_share(base, other[rank]);
      const auto loaded = run.load_newest(group, [&](int64_t, const Facts&) { return views(base, share); });
      if (!loaded) return;
      step = loaded->step;
      EXPECT_TRUE(share.buffers == share_of(state(loaded->step), other[rank]).buffers);
    });
    return step.load();
  };
  EXPECT_EQ(load(2), 4);
  EXPECT_EQ(load(3), 4);
  keeper.end_job("7");
  EXPECT_EQ(load(2), -1);
}

}  // namespace
}  // namespace mm::checkpoint::test
