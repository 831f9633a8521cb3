// SPDX-License-Identifier: Apache-2.0
// Open shard files for many threads, at most a fixed number at a time, whatever the number of shards.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "common/files.h"
#include "trainer/data/dataset.h"

namespace mm::data {

// Opens and describes a shard. Throws a data Error.
UniqueFd open_shard(const std::string& path, Shard& shard);
// Reads up to `length` bytes; fewer only at the end of the file. A read that fails is tried again a few times; then it is an Error
// with status 70: the disk may be well elsewhere.
size_t read_shard(const Shard& shard, int fd, int64_t offset, char* to, size_t length);

class ShardFiles {
 public:
  explicit ShardFiles(size_t most_open = 64) : most_open_(most_open) {}
  // The shard's file, opened where it is not, refused where it is no longer the one that `shard` describes.
  std::shared_ptr<const UniqueFd> get(uint32_t id, const Shard& shard);
  // It is opened anew when it is asked for next.
  void forget(uint32_t id);

 private:
  struct Open {
    std::shared_ptr<const UniqueFd> file;
    std::list<uint32_t>::iterator used;
  };
  const size_t most_open_;
  std::mutex mutex_;
  std::list<uint32_t> recent_;  // front: used last
  std::unordered_map<uint32_t, Open> open_;
};

}  // namespace mm::data
