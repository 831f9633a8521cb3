// SPDX-License-Identifier: Apache-2.0
// Where the bytes of a data set's shards come from: the files themselves, what was read ahead of them, a cache before them. Each
// holds the next one and asks it for what it does not have.
#pragma once

#include <cstdint>
#include <span>

namespace mm::data {

struct Request {
  uint32_t shard = 0;  // place in Dataset::shards()
  int64_t offset = 0;
  std::span<char> to;
};

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills all of them, in any order and, where it pays, at once. Any thread. Throws the Error of one that cannot be filled; what
  // the others hold is then undefined.
  virtual void read(std::span<const Request> requests) = 0;
};

}  // namespace mm::data
