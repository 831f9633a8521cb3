// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/cache/block_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <random>

#include "tests/trainer/data/support.h"

namespace mm::data {
namespace {

using namespace test;

const Hash128 key{0x1234, 0x5678};

std::shared_ptr<const Cipher> cipher(unsigned char first) {
  std::array<unsigned char, Cipher::key_bytes> bytes{first, 2, 3};
  return std::make_shared<const Cipher>(bytes);
}

std::string bytes(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::string out(n, '\0');
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

// Of a file with this content, which is in memory alone.
std::optional<BlockFile> open(const std::string& file, const Cipher* with, BlockFile::Bad& why, const Hash128& wanted = key) {
  UniqueFd fd(::memfd_create("block", MFD_CLOEXEC));
  EXPECT_EQ(::write(fd.get(), file.data(), file.size()), static_cast<ssize_t>(file.size()));
  return BlockFile::open(std::move(fd), "block", wanted, with, why);
}

TEST(BlockFile, GivesAnyPartOfWhatWasPutIn) {
  const auto with_key = cipher(1);
  for (const Cipher* with : {static_cast<const Cipher*>(nullptr), with_key.get()})
    for (const size_t size : {size_t{0}, size_t{1}, piece_bytes - 1, piece_bytes, piece_bytes + 1, 3 * piece_bytes + 500}) {
      const std::string content = bytes(size, static_cast<unsigned>(size));
      BlockFile::Bad why;
      const std::optional<BlockFile> block = open(encode_block(key, content, with), with, why);
      ASSERT_TRUE(block);
      EXPECT_EQ(block->size(), static_cast<int64_t>(size));
      std::mt19937 random(1);
      for (int i = 0; i < 40; ++i) {
        const size_t at = random() % (size + 1), n = i == 0 ? size - at : random() % (size - at + 1);
        std::string got(n, '\0');
        ASSERT_TRUE(block->read(static_cast<int64_t>(at), got, with));
        ASSERT_EQ(got, content.substr(at, n));
      }
      std::string past(2, '\0');
      EXPECT_FALSE(block->read(static_cast<int64_t>(size) - 1, past, with));
    }
}

// Whatever becomes of the file, what is read is right or refused.
TEST(BlockFile, NoChangeOfAByteIsOverlooked) {
  const auto with_key = cipher(1);
  const std::string content = bytes(piece_bytes + 3000, 5);
  for (const Cipher* with : {static_cast<const Cipher*>(nullptr), with_key.get()}) {
    const std::string whole = encode_block(key, content, with);
    std::mt19937 random(9);
    for (int i = 0; i < 1500; ++i) {
      std::string changed = whole;
      if (i < 112)
        changed[static_cast<size_t>(i)] ^= static_cast<char>(1 << random() % 8);
      else if (i % 3 == 0)
        changed.resize(random() % changed.size());
      else if (i % 3 == 1)
        changed[random() % changed.size()] ^= static_cast<char>(1 << random() % 8);
      else
        for (int k = 0; k < 20; ++k) changed[random() % 200] = static_cast<char>(random());
      BlockFile::Bad why;
      const std::optional<BlockFile> block = open(changed, with, why);
      std::string got(content.size(), '\0');
      const bool good = block && block->size() == static_cast<int64_t>(content.size()) && block->read(0, got, with);
      ASSERT_FALSE(good && got != content) << i;
      if (changed != whole) { ASSERT_FALSE(good) << i; }
    }
  }
}

TEST(BlockFile, OfAnotherBlockOrKeyIsRefused) {
  const auto one = cipher(1), two = cipher(2);
  BlockFile::Bad why;
  EXPECT_FALSE(open(encode_block(key, "text", nullptr), nullptr, why, Hash128{1, 1}));
  EXPECT_EQ(why, BlockFile::Bad::other_block);
  const std::string sealed = encode_block(key, "text", one.get());
  EXPECT_FALSE(open(sealed, nullptr, why));
  EXPECT_EQ(why, BlockFile::Bad::no_key);
  std::string got(4, '\0');
  const std::optional<BlockFile> block = open(sealed, two.get(), why);
  ASSERT_TRUE(block);
  EXPECT_FALSE(block->read(0, got, two.get()));
  EXPECT_TRUE(block->read(0, got, one.get()));
  // A piece of one block cannot stand for the same piece of another, though the same key sealed both.
  const std::string text = bytes(100, 1), a = encode_block(key, text, one.get()), other = encode_block({1, 1}, text, one.get());
  std::string mixed = a;
  mixed.replace(mixed.size() - 100, 100, other, other.size() - 100, 100);
  const std::optional<BlockFile> of_two = open(mixed, one.get(), why);
  ASSERT_TRUE(of_two);
  std::string whole(100, '\0');
  EXPECT_FALSE(of_two->read(0, whole, one.get()));
  EXPECT_NE(one->name_of(key), two->name_of(key));
  EXPECT_NE(one->name_of(key), key);
}

}  // namespace
}  // namespace mm::data
