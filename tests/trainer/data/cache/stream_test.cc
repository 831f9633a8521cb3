// SPDX-License-Identifier: Apache-2.0
// The stream with a cache before the shards: batches bit for bit as without one, whatever state the cache is in.
#include "trainer/data/stream.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <set>

#include "common/files.h"
#include "tests/trainer/data/support.h"
#include "trainer/data/image/image.h"

namespace mm::data {
namespace {

using namespace test;

struct Data {
  TemporaryFolder folder;
  Data() {
    for (int s = 0; s < 6; ++s) {
      std::vector<std::pair<std::string, std::string>> members;
      for (int i = 0; i < 10; ++i) {
        const std::string key = std::to_string(s * 10 + i);
        members.push_back({key + ".png", i == 4 ? "no picture" : encode_png(gradient(12 + i, 10 + s))});
        members.push_back({key + ".txt", "caption " + key});
      }
      write(folder.path("data/" + std::to_string(s) + ".tar"), make_tar(members));
    }
  }
};

// Key, ids and pixels of 12 batches (more than an epoch), of all ranks.
std::vector<std::string> read(const Data& data, const CacheOptions& cache, int ranks = 1, int threads = 2) {
  StreamOptions o;
  o.shards = {data.folder.path("data/*.tar")};
  o.global_batch = 8;
  o.rule = {.image_size = 16, .positions_per_image = 2, .vocabulary = 300};
  o.threads = threads;
  o.ranks = o.node_ranks = ranks;
  o.cache = cache;
  o.budget = 200'000;
  std::vector<std::unique_ptr<Stream>> streams;
  for (int r = 0; r < ranks; ++r) {
    o.rank = r;
    streams.push_back(std::make_unique<Stream>(o));
  }
  std::vector<std::string> all;
  for (int64_t b = 0; b < 12; ++b)
    for (const auto& stream : streams)
      for (const Sample& s : stream->next(b)) {
        std::string flat = s.key + " " + std::string(reinterpret_cast<const char*>(s.ids.data()), s.ids.size() * sizeof s.ids[0]);
        for (const Image& image : s.images) flat.append(image.rgb.begin(), image.rgb.end());
        all.push_back(std::move(flat));
      }
  return all;
}

TEST(CachedStream, IsTheSameStream) {
  const Data data;
  const std::vector<std::string> want = read(data, {});
  ASSERT_EQ(want.size(), 96u);
  CacheOptions memory, disk, sealed, small;
  memory.memory = 8 << 20;
  disk.folder = data.folder.path("plain");
  disk.disk = 1 << 24;
  std::array<unsigned char, Cipher::key_bytes> key{3};
  sealed = disk;
  sealed.folder = data.folder.path("sealed");
  sealed.cipher = std::make_shared<const Cipher>(key);
  small = disk;
  small.folder = data.folder.path("small");
  small.disk = 40'000;
  for (const CacheOptions& cache : {memory, disk, disk, sealed, sealed, small})
    for (const int ranks : {1, 2, 4}) ASSERT_EQ(read(data, cache, ranks, ranks), want) << cache.folder << ", " << ranks << " ranks";
  // Every block damaged.
  for (const auto& entry : std::filesystem::directory_iterator(disk.folder)) {
    if (entry.file_size() < 100) continue;
    std::string bytes = read_file(entry.path());
    bytes[bytes.size() - 50] ^= 4;
    write(entry.path(), bytes);
  }
  ASSERT_EQ(read(data, disk), want);
  // A disk that is full, and one that reads no more after a while.
  std::filesystem::remove_all(disk.folder);
  {
    const Hooked hooked([](const Operation& o) { return Fault{.error = o.op == Op::cache_write ? ENOSPC : 0}; });
    ASSERT_EQ(read(data, disk), want);
  }
  std::filesystem::remove_all(disk.folder);
  {
    std::atomic<int> reads = 0;
    const Hooked hooked([&](const Operation& o) { return Fault{.error = o.op == Op::cache_read && ++reads > 20 ? EIO : 0}; });
    ASSERT_EQ(read(data, disk), want);
  }
  // Storage where the first read of every place fails.
  {
    std::mutex mutex;
    std::set<std::pair<std::string, int64_t>> seen;
    const Hooked hooked([&](const Operation& o) {
      const std::lock_guard lock(mutex);
      return Fault{.error = o.op == Op::read && seen.insert({o.path, o.offset}).second ? EIO : 0};
    });
    ASSERT_EQ(read(data, {}), want);
  }
}

}  // namespace
}  // namespace mm::data
