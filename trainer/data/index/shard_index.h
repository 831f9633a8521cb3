// SPDX-License-Identifier: Apache-2.0
// The index of one shard: its samples in their order, and of each its key and parts. A file NAME.tar.mmidx, or the same bytes in
// memory where a shard is scanned when it is opened.
//
// Little-endian, in this order, every section at a multiple of 8 bytes: the header; entries; parts; block hashes; names of
// parts; their text; the text of keys. The header's own hash covers every byte of the file. A reader trusts nothing: sizes,
// ranges and the hash are checked before the first use, so that whatever a file holds is either read right or refused with a
// data Error. Files are published by rename and never changed, so that they can be mapped.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/index/hash.h"

namespace mm::data {

inline constexpr int64_t block_bytes = int64_t{4} << 20;  // a block of a shard, as it is stored; the last one is shorter

struct Part {
  int64_t offset = 0, size = 0;  // of the content, in the shard
  uint64_t hash = 0;             // XXH3-64 of the content; 0 where the shard was only scanned
  uint64_t name = 0;             // XXH3-64 of the part's name: see part_name
};

// What is known of a shard when its index is made.
struct ShardFacts {
  int64_t size = 0, modified_ns = 0;
  std::optional<Hash128> content;  // hash of the block hashes; none where the shard was only scanned
  std::vector<Hash128> blocks;
};

struct TarMember;

class ShardIndex {
 public:
  // Groups the members of a tar into samples. `hashes` are those of the members' contents, or empty.
  static ShardIndex build(const std::vector<TarMember>& members, const std::vector<uint64_t>& hashes, const ShardFacts& facts);
  // Maps a file. Throws a data Error that names it where it is not whole and sound.
  static ShardIndex open(const std::string& path);
  // The same from memory; `what` is for messages.
  static ShardIndex parse(std::string bytes, const std::string& what);

  std::string_view bytes() const { return bytes_; }
  int64_t samples() const { return static_cast<int64_t>(entries_.size()); }
  std::string_view key(int64_t sample) const;
  std::span<const Part> parts(int64_t sample) const;
  // Names of parts, without order: the hash that Part::name holds, and the text.
  std::vector<std::pair<uint64_t, std::string_view>> part_names() const;
  int64_t shard_size() const;
  int64_t shard_modified_ns() const;
  std::optional<Hash128> content() const;
  std::span<const Hash128> blocks() const { return blocks_; }
  // Of keys, parts and places, not of contents or times: the same for a scanned shard.
  uint64_t structure() const;

 private:
  struct Header;
  struct Entry {
    uint64_t key_at, first_part;
    uint32_t key_length, parts;
  };
  struct Name {
    uint64_t at, length;
  };
  ShardIndex() = default;
  void attach(const std::string& what);
  const Header& header() const;

  std::shared_ptr<const void> owner_;  // of the memory
  std::string_view bytes_;
  std::span<const Entry> entries_;
  std::span<const Part> parts_;
  std::span<const Hash128> blocks_;
  std::span<const Name> names_;
  std::string_view name_text_, key_text_;
};

}  // namespace mm::data
