// SPDX-License-Identifier: Apache-2.0
// What will be asked for soon, read before it is asked for, many ranges in few reads.
//
// Invariants: a range that was read ahead is given once; it is kept until then, or until its ticket goes. What is not here comes
// from the next source, so nothing depends on a read ahead but time: one that fails is as none, and whoever asks then gets the
// error.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/data/read/byte_source.h"

namespace mm::data {

struct Range {
  uint32_t shard = 0;
  int64_t offset = 0, size = 0;
};

class ReadAhead : public ByteSource {
 public:
  explicit ReadAhead(std::shared_ptr<ByteSource> next) : next_(std::move(next)) {}

  using Ticket = std::shared_ptr<void>;
  // A ticket for each of the samples, whose ranges are given.
  std::vector<Ticket> fetch(std::span<const std::vector<Range>> samples);
  void read(std::span<const Request> requests) override;
  int64_t kept_bytes() const;

 private:
  using Key = std::pair<uint32_t, int64_t>;
  struct Held {
    uint64_t ticket;
    std::string bytes;
  };
  void forget(uint64_t ticket, const std::vector<Key>& keys);

  const std::shared_ptr<ByteSource> next_;
  mutable std::mutex mutex_;
  std::multimap<Key, Held> held_;
  int64_t kept_ = 0;
  uint64_t tickets_ = 0;
};

}  // namespace mm::data
