// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/index/shard_index.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstring>
#include <random>

#include "common/files.h"
#include "tests/trainer/data/support.h"
#include "trainer/data/index/index_shard.h"
#include "trainer/data/tar.h"

namespace mm::data {
namespace {

using namespace test;

std::string noise(size_t length, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string out(length, '\0');
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

Shard describe(const std::string& path, UniqueFd& fd) {
  fd = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return {path, static_cast<int64_t>(std::filesystem::file_size(path)), 17, 0};
}

// Contents that end inside, at and behind the borders of blocks, an empty one, long names of both kinds.
std::vector<std::pair<std::string, std::string>> odd_members() {
  const auto block = static_cast<size_t>(block_bytes);
  return {{"a.png", noise(100, 1)},
          {"a.txt", ""},
          {"b.PNG", noise(block - 3 * 512 - 1024 - 512, 2)},  // up to the first border
          {"b.txt", "b"},
          {"c.png", noise(2 * block + 77, 3)},
          {std::string(300, 'd') + ".txt", "a name in a pax header"},
          {"a.json", "{}"},  // of the first sample again
          {"._hidden", "x"},
          {"e.png", noise(block, 4)}};
}

TEST(ShardIndex, HashesEveryPartAndBlock) {
  const TemporaryFolder folder;
  const auto members = odd_members();
  const std::string tar = make_tar(members) + noise(5000, 9);  // what follows the end marker belongs to the file as well
  write(folder.path("x.tar"), tar);
  UniqueFd fd;
  const Shard shard = describe(folder.path("x.tar"), fd);
  int64_t read = 0;
  const ShardIndex index = hash_shard(shard, fd.get(), [&](int64_t bytes) { read += bytes; });
  EXPECT_EQ(read, static_cast<int64_t>(tar.size()));
  const ShardIndex scanned = scan_shard(shard, fd.get());
  EXPECT_EQ(index.structure(), scanned.structure());
  EXPECT_FALSE(scanned.content());
  ASSERT_EQ(index.samples(), 5);
  ASSERT_EQ(scanned.samples(), 5);
  EXPECT_EQ(index.key(3), std::string(300, 'd'));
  size_t parts = 0;
  for (int64_t s = 0; s < index.samples(); ++s)
    for (const Part& part : index.parts(s)) {
      const std::string_view content = std::string_view(tar).substr(static_cast<size_t>(part.offset), static_cast<size_t>(part.size));
      EXPECT_EQ(part.hash, XXH3_64bits(content.data(), content.size())) << index.key(s);
      ++parts;
    }
  EXPECT_EQ(parts, members.size() - 1);
  EXPECT_EQ(index.parts(0).size(), 3u);
  ASSERT_EQ(index.blocks().size(), (tar.size() + static_cast<size_t>(block_bytes) - 1) / static_cast<size_t>(block_bytes));
  for (size_t b = 0; b < index.blocks().size(); ++b)
    EXPECT_EQ(index.blocks()[b], hash_of(std::string_view(tar).substr(b * static_cast<size_t>(block_bytes), static_cast<size_t>(block_bytes))));

  write(folder.path("x.tar.mmidx"), index.bytes());
  const ShardIndex opened = ShardIndex::open(folder.path("x.tar.mmidx"));
  EXPECT_EQ(opened.bytes(), index.bytes());
  EXPECT_EQ(opened.content(), index.content());
  EXPECT_EQ(opened.part_names().size(), 3u);
}

TEST(ShardIndex, AShardOfTenGigabytesIsScannedByItsHeaders) {
  const TemporaryFolder folder;
  const int64_t large = (int64_t{10} << 30) + 5;
  // A GNU header with its size in base 256, a hole, and another member behind it.
  std::string header;
  append_tar_member(header, "big.png", "");
  header[124] = static_cast<char>(0x80);
  for (int i = 0; i < 11; ++i) header[static_cast<size_t>(135 - i)] = static_cast<char>(i < 8 ? large >> (8 * i) & 0xff : 0);
  std::memset(header.data() + 148, ' ', 8);
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  std::snprintf(header.data() + 148, 7, "%06o", sum);
  const std::string rest = make_tar({{"small.txt", "here"}});
  const int64_t second = 512 + (large + 511) / 512 * 512;
  UniqueFd fd(::open(folder.path("x.tar").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::pwrite(fd.get(), header.data(), header.size(), 0), 512);
  ASSERT_EQ(::pwrite(fd.get(), rest.data(), rest.size(), second), static_cast<ssize_t>(rest.size()));
  const Dataset dataset({folder.path("x.tar")});
  ASSERT_EQ(dataset.samples(), 2);
  EXPECT_EQ(dataset.parts(0)[0].size, large);
  EXPECT_EQ(dataset.read(1, dataset.parts(1)[0]), "here");
}

// Everything that a reader could ask.
int64_t walk(const ShardIndex& index) {
  int64_t sum = static_cast<int64_t>(index.structure()) + index.shard_size() + static_cast<int64_t>(index.part_names().size());
  for (int64_t s = 0; s < index.samples(); ++s) {
    for (const char c : index.key(s)) sum += c;
    for (const Part& part : index.parts(s)) sum += part.offset + part.size;
  }
  for (const Hash128& block : index.blocks()) sum += static_cast<int64_t>(block.low);
  return sum;
}

TEST(ShardIndex, DamageIsRefusedOrHarmless) {
  const TemporaryFolder folder;
  write(folder.path("x.tar"), make_tar({{"a.png", "1"}, {"a.txt", "22"}, {"b.png", noise(3000, 1)}, {"b.txt", "t"}, {"c.0.png", "x"}, {"c.1.png", "y"}}));
  UniqueFd fd;
  const Shard shard = describe(folder.path("x.tar"), fd);
  const std::string good(hash_shard(shard, fd.get(), [](int64_t) {}).bytes());
  constexpr size_t hash_at = 24;
  const auto rehash = [](std::string& bytes) {
    if (bytes.size() < hash_at + 8) return;
    std::memset(bytes.data() + hash_at, 0, 8);
    const uint64_t hash = XXH3_64bits(bytes.data(), bytes.size());
    std::memcpy(bytes.data() + hash_at, &hash, 8);
  };
  {
    std::string same = good;
    rehash(same);
    ASSERT_EQ(same, good);
  }
  std::mt19937_64 random(7);
  int refused = 0, read = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    const bool forged = i % 2 == 0;  // with a hash that fits, as no accident has
    if (random() % 8 == 0)
      bytes.resize(random() % (bytes.size() + 64));
    else
      for (uint64_t n = 1 + random() % 3; n > 0; --n) {
        const size_t at = random() % (random() % 2 == 0 ? 128 : bytes.size());
        if (random() % 3 == 0 && at + 8 <= bytes.size()) {
          const uint64_t values[] = {0, ~uint64_t{0}, uint64_t{1} << 63, uint64_t{1} << 60, random() % 1000};
          std::memcpy(bytes.data() + at / 8 * 8, &values[random() % 5], 8);
        } else {
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
        }
      }
    if (forged) rehash(bytes);
    if (bytes == good) continue;
    try {
      walk(ShardIndex::parse(bytes, "fuzzed"));
      ++read;
      ASSERT_TRUE(forged) << "a change that the hash did not show";
    } catch (const Error& error) {
      ASSERT_EQ(error.status, exit_status::data) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 12000);
  EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace mm::data
