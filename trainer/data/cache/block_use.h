// SPDX-License-Identifier: Apache-2.0
// When a block of a shard is needed next, from the order of samples: by the ranks of this node, which share a cache.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/data/order/order.h"

namespace mm::data {

// A block of 4 MiB, counted over the shard.
struct BlockId {
  uint32_t shard = 0;
  uint32_t block = 0;
  auto operator<=>(const BlockId&) const = default;
};

// Which positions this node's ranks take: of each global batch those of ranks `first` to `first + count` of `ranks`.
struct NodeShare {
  int64_t global_batch = 1;
  int ranks = 1, first = 0, count = 1;
  bool has(int64_t position) const {
    const int64_t rank = position % global_batch / (global_batch / ranks);
    return rank >= first && rank < first + count;
  }
};

class BlockUse {
 public:
  // Of a data set and an order that outlive it.
  BlockUse(const Dataset& dataset, const Order& order, NodeShare share);
  // The first position from `from` on at which the block is read; the largest int64 where it never is.
  int64_t next(const BlockId& block, int64_t from) const;
  // The blocks that a sample lies in.
  std::vector<BlockId> blocks_of(int64_t sample) const;
  const Dataset& dataset() const { return dataset_; }
  const Order& order() const { return order_; }
  const NodeShare& share() const { return share_; }

 private:
  std::pair<int64_t, int64_t> samples_in(const BlockId& block) const;

  const Dataset& dataset_;
  const Order& order_;
  const NodeShare share_;
  std::vector<int64_t> first_sample_;  // of each shard, and the number of all at the end
};

}  // namespace mm::data
