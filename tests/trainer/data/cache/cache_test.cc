// SPDX-License-Identifier: Apache-2.0
// The cache before shards: whatever becomes of it, what is read is what the shards hold.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "common/files.h"
#include "tests/trainer/data/support.h"
#include "trainer/data/cache/block_cache.h"
#include "trainer/data/cache/folder.h"
#include "trainer/data/cache/scrub.h"
#include "trainer/data/cache/stage.h"
#include "trainer/data/read/shard_reader.h"

namespace mm::data {
namespace {

using namespace test;

constexpr int64_t shards = 12;
const std::string marker = "a caption that must not be seen by others";

// Twelve shards of one block each, of 20 samples each.
struct World {
  TemporaryFolder folder;
  std::unique_ptr<Dataset> dataset;
  std::unique_ptr<Order> order;
  std::shared_ptr<const BlockUse> use;
  int64_t block = 0;  // bytes of a cached one

  World() {
    std::mt19937 random(1);
    for (int s = 0; s < shards; ++s) {
      std::vector<std::pair<std::string, std::string>> members;
      for (int i = 0; i < 20; ++i) {
        std::string picture(1500, '\0');
        for (char& c : picture) c = static_cast<char>(random());
        members.push_back({std::to_string(i) + ".png", picture});
        members.push_back({std::to_string(i) + ".txt", marker + std::to_string(s * 20 + i)});
      }
      write(folder.path("data/" + std::to_string(100 + s) + ".tar"), make_tar(members));
    }
    dataset = std::make_unique<Dataset>(std::vector<std::string>{folder.path("data/*.tar")});
    order = std::make_unique<Order>(dataset->sources(), true, 3, 0);
    use = std::make_shared<const BlockUse>(*dataset, *order, NodeShare{});
    block = dataset->shards()[0].size + 2048;
  }
  std::string cache_folder() const { return folder.path("cache"); }
  std::unique_ptr<BlockCache> open(const CacheOptions& options) const {
    return std::make_unique<BlockCache>(use, options, std::make_shared<ShardReader>(dataset->shards()));
  }
  CacheOptions disk(int64_t blocks, std::shared_ptr<const Cipher> cipher = nullptr) const {
    CacheOptions options;
    options.folder = cache_folder();
    options.disk = blocks * block;
    options.cipher = std::move(cipher);
    options.prefetch = false;
    return options;
  }
  // Reads the samples at positions as the stream does, and holds them against the files.
  void walk(BlockCache& cache, int64_t from, int64_t to) const {
    for (int64_t p = from; p < to; ++p) {
      cache.at(p);
      const int64_t sample = (*order)(p);
      for (const Part& part : dataset->parts(sample)) {
        std::string got(static_cast<size_t>(part.size), '\0');
        cache.read(std::vector<Request>{{dataset->shard_id_of(sample), part.offset, got}});
        ASSERT_EQ(got, dataset->read(sample, part)) << "position " << p;
      }
    }
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(cache_folder()))
      if (entry.path().filename() != cache_lock_name) names.push_back(entry.path().string());
    return names;
  }
};

std::shared_ptr<const Cipher> some_cipher() {
  std::array<unsigned char, Cipher::key_bytes> key{9, 8, 7};
  return std::make_shared<const Cipher>(key);
}

// A member of the first shard that is random.
std::string dataset_picture(const World& world) {
  for (const Part& part : world.dataset->parts(0))
    if (world.dataset->part_name(part) == "png") return world.dataset->read(0, part);
  return "";
}

std::string content(const std::string& path) {
  return read_file(path);
}

TEST(BlockCache, GivesTheShardsBytesInEveryState) {
  const World world;
  const auto expect = [&](const CacheOptions& options, FaultHook hook = {}) {
    const Hooked hooked(std::move(hook));
    const std::unique_ptr<BlockCache> cache = world.open(options);
    world.walk(*cache, 100, 400);
    return cache->counters();
  };
  CacheOptions memory;
  memory.memory = 4 * world.block;
  memory.prefetch = false;
  EXPECT_EQ(expect(memory).disk_hits, 0);
  memory.memory = block_bytes * 2;
  EXPECT_GT(expect(memory).memory_hits, 500);
  EXPECT_GT(expect(world.disk(100)).disk_hits, 500);
  EXPECT_EQ(expect(world.disk(100)).misses, 0);  // still there
  // Damaged files are found, and fetched again.
  for (const std::string& file : world.files()) {
    std::string bytes = content(file);
    bytes[bytes.size() / 2] ^= 1;
    write(file, bytes);
  }
  EXPECT_GT(expect(world.disk(100)).misses, 0);
  // A small one, a full disk, one that fails in reading, in writing, and half a write.
  std::filesystem::remove_all(world.cache_folder());
  EXPECT_GT(expect(world.disk(3)).disk_hits, 0);
  EXPECT_LE(world.files().size(), 3u);
  expect(world.disk(100), [](const Operation& o) { return Fault{.error = o.op == Op::cache_read ? EIO : 0}; });
  std::filesystem::remove_all(world.cache_folder());
  const CacheCounters full = expect(world.disk(100), [](const Operation& o) {
    return Fault{.error = o.op == Op::cache_write && o.offset > 0 ? ENOSPC : 0, .at_most = o.op == Op::cache_write ? 1000 : SIZE_MAX};
  });
  EXPECT_EQ(full.disk_hits, 0);
  EXPECT_TRUE(world.files().empty());  // no half file stays
}

TEST(BlockCache, WithPrefetchEveryBlockIsFetchedOnce) {
  const World world;
  CacheOptions options = world.disk(100);
  options.prefetch = true;
  const std::unique_ptr<BlockCache> cache = world.open(options);
  world.walk(*cache, 0, 480);
  EXPECT_LE(cache->counters().fetched_bytes, shards * world.block);
}

// Which blocks of a sequence are found, where what is needed last goes: the best that is possible.
int64_t belady_hits(const std::vector<int64_t>& accesses, size_t capacity) {
  std::set<int64_t> there;
  int64_t hits = 0;
  for (size_t i = 0; i < accesses.size(); ++i) {
    if (there.contains(accesses[i])) {
      ++hits;
      continue;
    }
    const auto next = [&](int64_t block, size_t from) {
      const auto at = std::find(accesses.begin() + static_cast<std::ptrdiff_t>(from), accesses.end(), block);
      return at - accesses.begin();
    };
    there.insert(accesses[i]);
    if (there.size() <= capacity) continue;
    there.erase(*std::max_element(there.begin(), there.end(), [&](int64_t a, int64_t b) { return next(a, i + 1) < next(b, i + 1); }));
  }
  return hits;
}

TEST(BlockCache, FindsWhatTheBestCacheWouldFind) {
  const World world;
  const std::unique_ptr<BlockCache> cache = world.open(world.disk(4));
  std::vector<int64_t> accesses;
  for (int64_t p = 0; p < 1200; ++p) accesses.push_back(world.dataset->shard_id_of((*world.order)(p)));
  int64_t hits = 0;
  for (int64_t p = 0; p < 960; ++p) {
    const int64_t misses = cache->counters().misses;
    world.walk(*cache, p, p + 1);
    hits += cache->counters().misses == misses ? 1 : 0;
  }
  const int64_t best = belady_hits(accesses, 4);  // of a longer sequence, so never too low
  const int64_t of_this = belady_hits({accesses.begin(), accesses.begin() + 960}, 4);
  EXPECT_GE(static_cast<double>(hits), 0.95 * static_cast<double>(of_this)) << hits << " of " << of_this << " (" << best << ")";
}

TEST(BlockCache, ManyThreadsAndProcessesFetchEachBlockOnce) {
  const World world;
  std::atomic<int64_t> read = 0;
  const Hooked hooked([&](const Operation& o) {
    if (o.op == Op::read) read += static_cast<int64_t>(o.bytes);
    return Fault{.delay = std::chrono::microseconds(200)};
  });
  std::vector<std::unique_ptr<BlockCache>> processes;  // as each has its own open files, they are as foreign as two processes
  for (int i = 0; i < 3; ++i) processes.push_back(world.open(world.disk(100)));
  std::vector<std::thread> threads;
  for (int i = 0; i < 9; ++i) threads.emplace_back([&, i] {
      BlockCache& cache = *processes[static_cast<size_t>(i % 3)];
      std::string got(100, '\0');
      for (uint32_t shard = 0; shard < shards; ++shard) cache.read(std::vector<Request>{{shard, 600, got}});
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(read, shards * world.dataset->shards()[0].size);
}

TEST(BlockCache, AProcessThatDiesWhileItFetchesHoldsNobodyUp) {
  const World world;
  const pid_t child = ::fork();
  if (child == 0) {
    set_fault_hook([](const Operation& o) {
      if (o.op == Op::cache_write && o.offset > 0) ::kill(::getpid(), SIGKILL);
      return Fault{.at_most = o.op == Op::cache_write ? 4096u : SIZE_MAX};
    });
    const std::unique_ptr<BlockCache> cache = world.open(world.disk(100));
    std::string got(100, '\0');
    cache->read(std::vector<Request>{{0, 600, got}});
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(world.files().empty());
  const std::unique_ptr<BlockCache> cache = world.open(world.disk(100));
  world.walk(*cache, 0, 240);
  EXPECT_EQ(world.files().size(), static_cast<size_t>(shards));
}

TEST(BlockCache, WhatHangsIsPassedWhenItsLeaseIsOver) {
  const World world;
  DiskTier one(world.cache_folder(), 1 << 20, nullptr, [](const Hash128&, int64_t) { return 0; });
  DiskTier two(world.cache_folder(), 1 << 20, nullptr, [](const Hash128&, int64_t) { return 0; });
  const Hash128 key{1, 2};
  {
    const DiskTier::Flight flight = one.fly(key, std::chrono::milliseconds(0));
    EXPECT_TRUE(flight.owned());
    EXPECT_FALSE(two.fly(key, std::chrono::milliseconds(20)).owned());
    EXPECT_TRUE(two.fly({1, 900}, std::chrono::milliseconds(0)).owned());
  }
  EXPECT_TRUE(two.fly(key, std::chrono::milliseconds(0)).owned());
}

TEST(BlockCache, EncryptedNoByteOfASampleIsOnTheDisk) {
  const World world;
  for (const auto& cipher : {std::shared_ptr<const Cipher>(), some_cipher()}) {
    std::filesystem::remove_all(world.cache_folder());
    const std::unique_ptr<BlockCache> cache = world.open(world.disk(100, cipher));
    world.walk(*cache, 0, 240);
    EXPECT_EQ(world.files().size(), static_cast<size_t>(shards));
    std::string all;
    for (const std::string& file : world.files()) all += content(file);
    EXPECT_EQ(all.find(marker) != std::string::npos, cipher == nullptr);
    const std::string picture = dataset_picture(world);
    EXPECT_EQ(all.find(picture.substr(40, 16)) != std::string::npos, cipher == nullptr);
    EXPECT_EQ(all.find("ustar") != std::string::npos, cipher == nullptr);
  }
  // Another key, as after a restart of who holds it: nothing is found, everything is right.
  std::array<unsigned char, Cipher::key_bytes> key{1};
  const std::unique_ptr<BlockCache> cache = world.open(world.disk(100, std::make_shared<const Cipher>(key)));
  world.walk(*cache, 0, 240);
  EXPECT_GT(cache->counters().misses, 0);
}

TEST(BlockCache, AFolderThatIsNotTheUsersAloneIsRefused) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& name) {
    return error_of(exit_status::usage, [&] { open_private_folder(folder.path(name)); });
  };
  std::filesystem::create_directory(folder.path("open"));
  ::chmod(folder.path("open").c_str(), 0755);
  EXPECT_NE(refused("open").find("is open to other users (mode 0755)"), std::string::npos);
  ::mkdir(folder.path("mine").c_str(), 0700);
  open_private_folder(folder.path("mine"));
  std::filesystem::create_directory_symlink(folder.path("mine"), folder.path("link"));
  refused("link");
  write(folder.path("file"), "x");
  refused("file");
  refused("no/parent");
  if (::geteuid() != 0) GTEST_SKIP() << "a folder of another user takes root to make";
  ASSERT_EQ(::chown(folder.path("mine").c_str(), 4321, static_cast<gid_t>(-1)), 0);
  EXPECT_NE(refused("mine").find("belongs to user 4321"), std::string::npos);
}

TEST(BlockCache, TwoThatStageShareTheWork) {
  const World world;
  std::atomic<int64_t> read = 0;
  const Hooked hooked([&](const Operation& o) {
    if (o.op == Op::read) read += static_cast<int64_t>(o.bytes);
    return Fault{};
  });
  StageResult results[2];
  std::vector<std::thread> threads;
  for (StageResult& result : results)
    threads.emplace_back([&] {
      const std::unique_ptr<BlockCache> cache = world.open(world.disk(100));
      result = stage_blocks(*cache, *world.use, 0, [](const StageResult&) {});
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(results[0].fetched + results[1].fetched, shards);
  EXPECT_EQ(read, shards * world.dataset->shards()[0].size);
  // What has no room is what is needed last.
  std::filesystem::remove_all(world.cache_folder());
  const std::unique_ptr<BlockCache> cache = world.open(world.disk(5));
  const StageResult some = stage_blocks(*cache, *world.use, 0, [](const StageResult&) {});
  EXPECT_EQ(some.fetched, 5);
  EXPECT_EQ(some.left, shards - 5);
}

TEST(Scrub, RemovesWhatIsDamagedAndAllOnDemand) {
  const World world;
  {
    const std::unique_ptr<BlockCache> cache = world.open(world.disk(100));
    world.walk(*cache, 0, 240);
  }
  std::vector<std::string> told;
  const auto tell = [&](const std::string& file) { told.push_back(file); };
  EXPECT_EQ(scrub_cache(world.cache_folder(), false, tell).blocks, shards);
  const std::string victim = world.files()[0];
  std::string bytes = content(victim);
  bytes.back() ^= 1;
  write(victim, bytes);
  write(world.cache_folder() + "/notes.txt", "not ours");
  const ScrubResult result = scrub_cache(world.cache_folder(), false, tell);
  EXPECT_EQ(result.removed, 1);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0], std::filesystem::path(victim).filename());
  EXPECT_EQ(scrub_cache(world.cache_folder(), true, tell).removed, shards - 1);
  EXPECT_TRUE(std::filesystem::exists(world.cache_folder() + "/notes.txt"));
  error_of(exit_status::usage, [&] { scrub_cache(world.cache_folder(), true, tell); });
  error_of(exit_status::usage, [&] { scrub_cache(world.folder.path("data"), true, tell); });
}

}  // namespace
}  // namespace mm::data
