// SPDX-License-Identifier: Apache-2.0
// A cached block as a file. Little-endian: the header; 16 bytes for each piece of 64 KiB, its XXH3-128 or, where the block is
// encrypted, the tag of its cipher; XXH3-128 of all that before; the pieces.
//
// Nothing is trusted: a file is opened only where its header is sound, names the block that is asked for and agrees with the
// file's size, and each piece is checked when it is read. Whatever a file holds, a read gives the block's bytes or fails.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/files.h"
#include "trainer/data/cache/cipher.h"
#include "trainer/data/index/hash.h"
#include "trainer/data/index/shard_index.h"

namespace mm::data {

inline constexpr size_t piece_bytes = 64 << 10;

// The whole file. Throws an Error for a block of more than block_bytes. No cipher: as it is.
std::string encode_block(const Hash128& key, std::string_view content, const Cipher* cipher);

class BlockFile {
 public:
  // Why a file is none; `no_key` is an encrypted one that there is no cipher for.
  enum class Bad { none, header, other_block, no_key };
  // Reads and checks the header. `path` is for messages; a read that fails throws an Error with status 70. No `key`: whatever block it is.
  static std::optional<BlockFile> open(UniqueFd fd, const std::string& path, const std::optional<Hash128>& key, const Cipher* cipher, Bad& why);
  int64_t size() const { return size_; }  // of the block
  const Hash128& key() const { return key_; }
  bool encrypted() const { return encrypted_; }
  // Fills `to` from `offset`; false where a piece is damaged or the range is not in the block.
  bool read(int64_t offset, std::span<char> to, const Cipher* cipher) const;

 private:
  BlockFile() = default;
  bool read_piece(size_t number, std::span<char> to, const Cipher* cipher) const;

  UniqueFd fd_;
  std::string path_;
  Hash128 key_;
  int64_t size_ = 0, first_ = 0;  // of the block; where pieces begin in the file
  bool encrypted_ = false;
  Cipher::Nonce nonce_{};
  std::vector<Cipher::Tag> marks_;  // hash or tag of each piece
};

}  // namespace mm::data
