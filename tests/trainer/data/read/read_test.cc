// SPDX-License-Identifier: Apache-2.0
// Reading of many ranges at once, against plain copies of the files: merged or not, with faults of every kind, for both engines.
#include <atomic>
#include <cerrno>
#include <mutex>
#include <random>

#include "tests/trainer/data/support.h"
#include "trainer/data/read/memory_budget.h"
#include "trainer/data/read/read_ahead.h"
#include "trainer/data/read/shard_reader.h"

namespace mm::data {
namespace {

using namespace test;

std::string random_bytes(size_t n, unsigned seed) {
  std::mt19937_64 random(seed);
  std::string bytes(n, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

// Files that serve as shards, and their contents.
struct Files {
  TemporaryFolder folder;
  std::vector<std::string> contents;
  std::vector<Shard> shards;

  explicit Files(const std::vector<size_t>& sizes) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      contents.push_back(random_bytes(sizes[i], static_cast<unsigned>(i)));
      write(folder.path(std::to_string(i) + ".tar"), contents.back());
      shards.emplace_back();
      open_shard(folder.path(std::to_string(i) + ".tar"), shards.back());
    }
  }
};

struct Asked {
  std::vector<std::string> bytes;
  std::vector<Request> requests;
};

Asked ask(const Files& files, size_t count, size_t largest, unsigned seed) {
  std::mt19937 random(seed);
  Asked asked;
  asked.bytes.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const auto shard = static_cast<uint32_t>(random() % files.contents.size());
    const size_t all = files.contents[shard].size(), size = random() % (std::min(largest, all) + 1), offset = random() % (all - size + 1);
    asked.bytes[i].resize(size);
    asked.requests.push_back({shard, static_cast<int64_t>(offset), asked.bytes[i]});
  }
  return asked;
}

void expect_right(const Files& files, const Asked& asked) {
  for (const Request& r : asked.requests)
    ASSERT_EQ(std::string_view(r.to.data(), r.to.size()), std::string_view(files.contents[r.shard]).substr(static_cast<size_t>(r.offset), r.to.size()))
        << r.shard << " at " << r.offset;
}

TEST(Merge, EveryByteIsReadOnceAndNothingIsTooLarge) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const MergeRule rule{static_cast<int64_t>(random() % 50), 1 + static_cast<int64_t>(random() % 200)};
    std::vector<std::string> bytes(random() % 40);
    std::vector<Request> requests;
    for (std::string& b : bytes) {
      b.resize(random() % 300);
      requests.push_back({static_cast<uint32_t>(random() % 3), static_cast<int64_t>(random() % 2000), b});
    }
    std::vector<int64_t> covered(requests.size());
    for (const MergedRead& read : merge_requests(requests, rule)) {
      ASSERT_LE(read.size, rule.largest);
      ASSERT_FALSE(read.requests.empty());
      int64_t end = read.offset;
      for (const uint32_t i : read.requests) {
        const Request& r = requests[i];
        ASSERT_EQ(r.shard, read.shard);
        const int64_t begin = std::max(r.offset, read.offset), stop = std::min(r.offset + static_cast<int64_t>(r.to.size()), read.offset + read.size);
        ASSERT_LE(begin - end, rule.gap);
        end = std::max(end, stop);
        covered[i] += stop - begin;
        if (read.requests.size() > 1) { ASSERT_EQ(stop - begin, static_cast<int64_t>(r.to.size())); }
      }
      ASSERT_EQ(end, read.offset + read.size);
    }
    for (size_t i = 0; i < requests.size(); ++i) ASSERT_EQ(covered[i], static_cast<int64_t>(requests[i].to.size()));
  }
}

TEST(ShardReader, GivesTheFilesBytesWithShortReadsAndWithout) {
  const Files files({1 << 20, 300, 2'000'000, 70'000});
  for (const ReadEngine::Kind kind : {ReadEngine::Kind::automatic, ReadEngine::Kind::plain})
    for (const bool fall_short : {false, true}) {
      std::mt19937 random(3);
      std::mutex mutex;
      const Hooked hooked([&](const Operation& o) {
        const std::lock_guard lock(mutex);
        Fault fault;
        if (fall_short && random() % 3 == 0) fault.at_most = 1 + random() % o.bytes;
        if (fall_short && random() % 7 == 0) fault.error = EINTR;
        return fault;
      });
      ShardReader reader(files.shards, kind);
      for (unsigned seed = 0; seed < 12; ++seed) {
        const Asked asked = ask(files, seed == 0 ? 1 : 300, seed % 3 == 0 ? 1'500'000 : 20'000, seed);
        reader.read(asked.requests);
        expect_right(files, asked);
      }
    }
}

TEST(ShardReader, WhatFailsOnceIsTriedAgainAndAStaleHandleIsOpenedAnew) {
  const Files files({1 << 20});
  for (const int error : {EIO, ESTALE, ETIMEDOUT})
    for (const ReadEngine::Kind kind : {ReadEngine::Kind::automatic, ReadEngine::Kind::plain}) {
      std::atomic<int> left = 2;
      const Hooked hooked([&](const Operation& o) { return Fault{.error = o.op == Op::read && left-- > 0 ? error : 0}; });
      ShardReader reader(files.shards, kind);
      const Asked asked = ask(files, 50, 5000, 1);
      reader.read(asked.requests);
      expect_right(files, asked);
    }
}

TEST(ShardReader, WhatGoesOnFailingNamesThePlaceAndIsNotAFaultOfTheData) {
  const Files files({1 << 20});
  const Hooked hooked([](const Operation& o) { return Fault{.error = o.offset >= 500'000 ? EIO : 0}; });
  ShardReader reader(files.shards);
  std::string near(100, '\0'), far(100, '\0');
  reader.read(std::vector<Request>{{0, 5, near}});
  const std::string message = error_of(exit_status::internal, [&] { reader.read(std::vector<Request>{{0, 5, near}, {0, 700'000, far}}); });
  EXPECT_NE(message.find(files.shards[0].path + " at offset 700000"), std::string::npos) << message;
}

TEST(ShardReader, AShardThatWasReplacedOrCutIsADataError) {
  Files files({100'000, 100'000});
  ShardReader reader(files.shards);
  std::string bytes(100, '\0');
  reader.read(std::vector<Request>{{0, 99'900, bytes}});
  std::filesystem::resize_file(files.shards[0].path, 50'000);
  EXPECT_NE(error_of(exit_status::data, [&] { reader.read(std::vector<Request>{{0, 99'900, bytes}}); }).find("cut short"), std::string::npos);
  write(files.folder.path("new"), files.contents[1] + "x");
  std::filesystem::rename(files.folder.path("new"), files.shards[1].path);
  EXPECT_NE(error_of(exit_status::data, [&] { reader.read(std::vector<Request>{{1, 0, bytes}}); }).find("changed"), std::string::npos);
}

TEST(ShardReader, ThousandsOfNeighboursAreAFewReads) {
  const Files files({4 << 20});
  std::atomic<int> reads = 0;
  const Hooked hooked([&](const Operation&) {
    ++reads;
    return Fault{};
  });
  ShardReader reader(files.shards);
  std::vector<std::string> bytes(2000, std::string(1500, '\0'));
  std::vector<Request> requests;
  for (size_t i = 0; i < bytes.size(); ++i) requests.push_back({0, static_cast<int64_t>(i) * 2048, bytes[i]});
  reader.read(requests);
  EXPECT_LE(reads, 9);
  EXPECT_EQ(bytes[1999], files.contents[0].substr(1999 * 2048, 1500));
}

TEST(ReadAhead, GivesEachRangeOnceAndForgetsWithTheTicket) {
  const Files files({100'000});
  std::atomic<int> reads = 0;
  const Hooked hooked([&](const Operation&) {
    ++reads;
    return Fault{};
  });
  ReadAhead ahead(std::make_shared<ShardReader>(files.shards));
  const std::vector<std::vector<Range>> samples = {{{0, 10, 100}, {0, 200, 50}}, {{0, 10, 100}}, {}};
  std::vector<ReadAhead::Ticket> tickets = ahead.fetch(samples);
  ASSERT_EQ(tickets.size(), 3u);
  EXPECT_EQ(ahead.kept_bytes(), 250);
  const int before = reads;
  const auto get = [&](int64_t offset, size_t size) {
    std::string bytes(size, '\0');
    ahead.read(std::vector<Request>{{0, offset, bytes}});
    EXPECT_EQ(bytes, files.contents[0].substr(static_cast<size_t>(offset), size));
  };
  get(10, 100);
  get(10, 100);
  EXPECT_EQ(reads, before);
  get(10, 100);  // both are gone
  EXPECT_EQ(reads, before + 1);
  get(200, 20);  // another range than the one that was read
  EXPECT_EQ(reads, before + 2);
  tickets.clear();
  EXPECT_EQ(ahead.kept_bytes(), 0);
}

TEST(ReadAhead, AFailureIsAsNone) {
  const Files files({1000});
  ReadAhead ahead(std::make_shared<ShardReader>(files.shards));
  const std::vector<std::vector<Range>> samples = {{{0, 900, 200}}};  // past the end
  EXPECT_EQ(ahead.fetch(samples).size(), 1u);
  EXPECT_EQ(ahead.kept_bytes(), 0);
  std::string bytes(200, '\0');
  error_of(exit_status::data, [&] { ahead.read(std::vector<Request>{{0, 900, bytes}}); });
}

TEST(MemoryBudget, IsTheLeastOfMachineAndGroups) {
  const TemporaryFolder root;
  write(root.path("proc/meminfo"), "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable: 8000 kB\n");
  EXPECT_EQ(available_memory(root.path()), 8000 * 1024);
  write(root.path("proc/self/cgroup"), "0::/job/step\n");
  const auto group = [&](const std::string& folder, const std::string& limit, int64_t use, int64_t cache) {
    write(root.path("sys/fs/cgroup" + folder + "/memory.max"), limit + "\n");
    write(root.path("sys/fs/cgroup" + folder + "/memory.current"), std::to_string(use) + "\n");
    write(root.path("sys/fs/cgroup" + folder + "/memory.stat"), "anon 5\ninactive_file " + std::to_string(cache) + "\n");
  };
  group("/job/step", "max", 100, 0);
  EXPECT_EQ(available_memory(root.path()), 8000 * 1024);
  group("/job", "1000000", 300000, 100000);  // the limit of the group above counts
  EXPECT_EQ(available_memory(root.path()), 800000);
  group("/job/step", "500000", 600000, 0);
  EXPECT_EQ(available_memory(root.path()), 0);
  // Version 1.
  write(root.path("proc/self/cgroup"), "5:cpu:/\n4:memory:/slurm/uid_1\n0::/\n");
  write(root.path("sys/fs/cgroup/memory/slurm/uid_1/memory.limit_in_bytes"), "2000000\n");
  write(root.path("sys/fs/cgroup/memory/slurm/uid_1/memory.usage_in_bytes"), "1500000\n");
  write(root.path("sys/fs/cgroup/memory/memory.limit_in_bytes"), "9223372036854771712\n");
  write(root.path("sys/fs/cgroup/memory/memory.usage_in_bytes"), "1500000\n");
  EXPECT_EQ(available_memory(root.path()), 500000);
  EXPECT_GT(available_memory(), 0);  // this machine's
  EXPECT_GT(loader_budget(0, 8), 0);
  EXPECT_LE(loader_budget(INT64_MAX, 1), int64_t{1} << 30);
}

}  // namespace
}  // namespace mm::data
