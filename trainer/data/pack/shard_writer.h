// SPDX-License-Identifier: Apache-2.0
// Writes samples into PREFIX-00000.tar, PREFIX-00001.tar, ...; a shard is closed, and safe on the disk, when it is full.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/files.h"

namespace mm::data {

struct ShardLimits {
  int64_t samples = 2000;
  int64_t bytes = int64_t{1} << 30;
};

class ShardWriter {
 public:
  ShardWriter(std::string folder, std::string prefix, ShardLimits limits);
  // Parts by name: {"png", ...}, {"txt", ...}.
  void add(const std::string& key, const std::vector<std::pair<std::string, std::string>>& parts);
  void finish();
  int64_t samples() const { return samples_; }
  int64_t shards() const { return shards_; }
  int64_t bytes() const { return bytes_; }

 private:
  void write(const std::string& bytes);
  void close();

  const std::string folder_, prefix_;
  const ShardLimits limits_;
  std::string path_;
  UniqueFd fd_;
  int64_t shard_samples_ = 0, shard_bytes_ = 0;
  int64_t samples_ = 0, shards_ = 0, bytes_ = 0;
};

}  // namespace mm::data
