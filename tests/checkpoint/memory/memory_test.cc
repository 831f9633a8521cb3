// SPDX-License-Identifier: Apache-2.0
// Checkpoints in memory that the agent keeps: they outlive the ranks, go to their owner only, and end with the job.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
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
  explicit Keeper(const std::string& path, const std::string& folders = "") {
    std::promise<void> ready;
    thread_ = std::jthread([&, path, folders] {
      agent::MemoryKeeper keeper(loop_, path, budget, folders, [](const std::string& job) -> std::optional<uid_t> {
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
    run([&] { keeper_->job_ended(job); });
  }
  void sweep(const std::function<bool(const std::string&)>& runs_here) {
    run([&] { keeper_->sweep(runs_here); });
  }

 private:
  void run(const std::function<void()>& body) {
    std::promise<void> done;
    loop_.post([&] {
      body();
      done.set_value();
    });
    done.get_future().wait();
  }

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

TEST(Memory, AFolderOnTheNodesDiskIsTheJobsOwnAndEndsWithIt) {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  const std::string path = folder / "memory.sock", folders = folder / "disk/jobs";
  fs::create_directories(folder / "precious");
  std::ofstream(folder / "precious/file") << "x";
  {
    Keeper keeper(path, folders);
    MemoryKeeperClient client(path, "7");
    const std::string mine = client.folder();
    EXPECT_EQ(mine, folders + "/job-7");
    EXPECT_EQ(client.folder(), mine);
    EXPECT_EQ(fs::status(mine).permissions(), fs::perms::owner_all);
    fs::create_directories(mine + "/a/b");
    fs::create_directory_symlink(folder / "precious", mine + "/a/link");
    EXPECT_NE(message_of([&] { MemoryKeeperClient(path, "8").folder(); }).find("is not known here as one of user"), std::string::npos);
    keeper.end_job("7");
    EXPECT_TRUE(fs::exists(client.folder()));  // another run of the same job: it comes after the removal
    EXPECT_TRUE(fs::is_empty(mine));
    // What jobs left that ended while no agent was there. Job 7 is known here.
    for (const std::string job : {"job-5", "job-6", "other"}) fs::create_directories(folders + "/" + job + "/a");
    keeper.sweep([](const std::string& job) { return job == "6"; });
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (fs::exists(folders + "/job-5") && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_FALSE(fs::exists(folders + "/job-5"));
    for (const std::string job : {"job-6", "job-7", "other"}) EXPECT_TRUE(fs::exists(folders + "/" + job)) << job;
    // A folder that somebody else could have made is not used.
    fs::permissions(mine, fs::perms::all);
    EXPECT_NE(message_of([&] { client.folder(); }).find("not a folder of the job's user alone"), std::string::npos);
    fs::permissions(folders, fs::perms::all);
    EXPECT_NE(message_of([&] { client.folder(); }).find("may write there"), std::string::npos);
  }
  EXPECT_TRUE(fs::exists(folder / "precious/file"));
  Keeper without(path);
  EXPECT_NE(message_of([&] { MemoryKeeperClient(path, "7").folder(); }).find("no folder for jobs"), std::string::npos);
}

TEST(Memory, AClientFindsTheAgentAgain) {
  const TemporaryFolder folder;
  const std::string path = folder / "memory-n1.sock";
  EXPECT_EQ(memory_socket_beside(folder / "agent-n1.sock"), path);
  auto keeper = std::make_unique<Keeper>(path);
  MemoryKeeperClient client(path, "7");
  client.put("a", memory("x").get());
  keeper.reset();
  EXPECT_NE(message_of([&] { client.list(); }).find("connect"), std::string::npos);
  keeper = std::make_unique<Keeper>(path);
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
  // Another run of the same job does not see them.
  RunFolder(folder / "other", true);
  SelfGroup alone;
  RunFolder other(folder / "other", false);
  EXPECT_TRUE(other.use_tiers(alone, tiers).empty());
  EXPECT_FALSE(other.load_newest(alone, [&](int64_t, const Facts&) { return std::vector<View>{}; }).has_value());
  keeper.end_job("7");
  EXPECT_EQ(load(2), -1);
}

TEST(Keeper, GivesEachJobASecretOfItsOwn) {
  const TemporaryFolder folder;
  const std::string path = folder / "memory.sock";
  Keeper keeper(path);
  using Bytes = std::array<unsigned char, 32>;
  const auto secret = [&](const std::string& job) {
    Bytes bytes{};
    MemoryKeeperClient(path, job).secret(bytes);
    return bytes;
  };
  const Bytes first = secret("7");
  EXPECT_EQ(secret("7"), first);
  EXPECT_NE(first, Bytes{});
  EXPECT_THROW(secret("8"), Error);  // another user's
  EXPECT_THROW(secret("9"), Error);
  keeper.end_job("7");
  EXPECT_NE(secret("7"), first);
}

}  // namespace
}  // namespace mm::checkpoint::test
