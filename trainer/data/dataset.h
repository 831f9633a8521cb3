// SPDX-License-Identifier: Apache-2.0
// A data set: tar shards in the order of their names, and in each the samples in the order of the tar. Opening reads the
// headers of every shard; contents are read when asked for. Members belong to one sample where folder and base name up to its
// first dot agree, the rest is the part's name ("png", "0.jpg", "txt"), in lower case. Hidden files (".x", "._x") are no parts.
// A shard must stay as it was opened: another size, time or file under its name is an error when it is read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace mm::data {

class ShardFiles;

struct Shard {
  std::string path;
  int64_t size = 0, modified_ns = 0;
  uint64_t inode = 0;
};

struct Part {
  int64_t offset = 0, size = 0;
  uint32_t name = 0;  // see Dataset::part_name
};

class Dataset {
 public:
  // Glob patterns (with {a,b}); a shard that several match is taken once. Throws a data Error that names pattern or shard.
  explicit Dataset(const std::vector<std::string>& patterns);
  // One shard by its plain name; it may hold no sample.
  static Dataset open_one(const std::string& path);
  ~Dataset();
  Dataset(Dataset&&) noexcept;

  int64_t samples() const { return static_cast<int64_t>(entries_.size()); }
  std::string_view key(int64_t sample) const;
  std::span<const Part> parts(int64_t sample) const;
  const std::string& part_name(const Part& part) const { return names_[part.name]; }
  const Shard& shard_of(int64_t sample) const { return shards_[entries_[static_cast<size_t>(sample)].shard]; }
  const std::vector<Shard>& shards() const { return shards_; }
  // The content of a part. Any thread. A read error is an Error that may be retried elsewhere (70), a changed shard a data
  // Error.
  std::string read(int64_t sample, const Part& part) const;
  // "2 shards, 256 samples, 412160 bytes, index 0123456789abcdef": the hash covers names, keys, parts and places.
  std::string fingerprint() const;

 private:
  Dataset();
  struct Entry {
    uint64_t key_at, first_part;
    uint32_t key_length, parts, shard;
  };
  void add_shard(uint32_t shard);
  uint32_t name_id(const std::string& name);

  std::vector<Shard> shards_;
  std::vector<Entry> entries_;
  std::vector<Part> parts_;
  std::string keys_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, uint32_t> name_ids_;
  std::unique_ptr<ShardFiles> files_;
};

// The shards that patterns name, sorted and without duplicates. Throws a data Error for a pattern that matches nothing.
std::vector<std::string> find_shards(const std::vector<std::string>& patterns);

}  // namespace mm::data
