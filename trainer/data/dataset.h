// SPDX-License-Identifier: Apache-2.0
// A data set: tar shards in the order of their names, and in each the samples in the order of the tar. Members belong to one
// sample where folder and base name up to its first dot agree, the rest is the part's name ("png", "0.jpg", "txt"), in lower
// case. Hidden files (".x", "._x") are no parts.
//
// Where `mm-data index` was run, opening reads dataset.json alone; the index of a shard is mapped when the shard is first
// touched, which any call that takes a sample may do, and which throws a data Error where it is damaged. A shard that is not in
// the newest version, or has another size or time than there, is scanned when the data set is opened. A data set that names a
// version consists of the shards of that version, and one that is missing or differs is an Error. In any case a shard must stay
// as it was opened: another size, time or file under its name is an error when it is read.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/index/shard_index.h"
#include "trainer/data/order/order.h"

namespace mm::data {

class ByteSource;

struct Shard {
  std::string path;
  int64_t size = 0, modified_ns = 0;
  uint64_t inode = 0;
};

struct DatasetOptions {
  std::vector<std::string> shards;    // glob patterns (with {a,b}); a shard that several match is taken once
  std::map<std::string, double> mix;  // in their place: patterns of the sources, with their weights
  std::string index;                  // the folder of dataset.json; empty: that of the shards
  std::string version;                // the beginning of a version's id; empty: the newest
};

class Dataset {
 public:
  // Throws a data Error that names pattern or shard.
  explicit Dataset(const DatasetOptions& options);
  explicit Dataset(const std::vector<std::string>& patterns) : Dataset(DatasetOptions{patterns, {}, {}, {}}) {}
  // One shard by its plain name; it may hold no sample. Its index is not looked for.
  static Dataset open_one(const std::string& path);
  ~Dataset();
  Dataset(Dataset&&) noexcept;

  // Any thread. What is returned stays as long as the data set.
  int64_t samples() const { return first_.back(); }
  std::string_view key(int64_t sample) const;
  std::span<const Part> parts(int64_t sample) const;
  const std::string& part_name(const Part& part) const;
  uint32_t shard_id_of(int64_t sample) const;
  const Shard& shard_of(int64_t sample) const { return shards_[shard_id_of(sample)]; }
  const std::vector<Shard>& shards() const { return shards_; }
  int64_t samples_of(uint32_t shard) const { return first_[shard + 1] - first_[shard]; }
  // The one source, or those of the mix.
  const std::vector<Source>& sources() const { return sources_; }

  // The content of a part. Any thread. A read error is an Error that may be retried elsewhere (70), a changed shard a data
  // Error.
  std::string read(int64_t sample, const Part& part) const;
  // Where read() gets bytes from: the shards' files, until something is put before them. Not while others read.
  const std::shared_ptr<ByteSource>& source() const { return source_; }
  void set_source(std::shared_ptr<ByteSource> source) { source_ = std::move(source); }
  // The hash of block `block` (block_bytes each) of a shard's file; none where the shard has no index.
  std::optional<Hash128> block_hash(uint32_t shard, int64_t block) const;
  bool indexed(uint32_t shard) const;
  // "2 shards, 256 samples, 412160 bytes, index 0123456789abcdef": the hash covers names, keys, parts and places, and is the
  // same with and without an index.
  std::string fingerprint() const;

 private:
  struct Indexes;
  Dataset();
  void add_source(const std::vector<std::string>& paths, double weight, const DatasetOptions& options);
  const ShardIndex& index_of(uint32_t shard) const;

  std::vector<Shard> shards_;
  std::vector<int64_t> first_;  // sample of each shard, and the number of all
  std::vector<Source> sources_;
  std::unique_ptr<Indexes> indexes_;
  std::shared_ptr<ByteSource> source_;
};

// The shards that patterns name, sorted and without duplicates. Throws a data Error for a pattern that matches nothing.
std::vector<std::string> find_shards(const std::vector<std::string>& patterns);

}  // namespace mm::data
