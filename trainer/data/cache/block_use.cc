// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/cache/block_use.h"

#include <algorithm>
#include <limits>

namespace mm::data {
namespace {

constexpr int most_epochs = 8;  // that are looked through for one in which this node reads the sample

struct Extent {
  int64_t begin = 0, end = 0;
};
Extent extent_of(const Dataset& dataset, int64_t sample) {
  Extent extent{std::numeric_limits<int64_t>::max(), 0};
  for (const Part& part : dataset.parts(sample)) {
    extent.begin = std::min(extent.begin, part.offset);
    extent.end = std::max(extent.end, part.offset + part.size);
  }
  return extent;
}

// The first sample in [begin, end) for which `after` holds; it holds for all after one.
template <class After>
int64_t first_that(int64_t begin, int64_t end, const After& after) {
  while (begin < end) {
    const int64_t middle = begin + (end - begin) / 2;
    after(middle) ? end = middle : begin = middle + 1;
  }
  return begin;
}

}  // namespace

BlockUse::BlockUse(const Dataset& dataset, const Order& order, NodeShare share) : dataset_(dataset), order_(order), share_(share) {
  const int64_t n = dataset.samples();
  for (size_t shard = 0; shard <= dataset.shards().size(); ++shard)
    first_sample_.push_back(first_that(first_sample_.empty() ? 0 : first_sample_.back(), n,
                                       [&](int64_t sample) { return dataset_.shard_id_of(sample) >= shard; }));
}

// Samples follow each other in a shard; where all pictures come first, this is a part of them, and the cache merely keeps worse.
std::pair<int64_t, int64_t> BlockUse::samples_in(const BlockId& block) const {
  const int64_t begin = int64_t{block.block} * block_bytes, end = begin + block_bytes;
  const int64_t first = first_sample_[block.shard], last = first_sample_[block.shard + 1];
  const int64_t from = first_that(first, last, [&](int64_t s) { return extent_of(dataset_, s).end > begin; });
  return {from, first_that(from, last, [&](int64_t s) { return extent_of(dataset_, s).begin >= end; })};
}

int64_t BlockUse::next(const BlockId& block, int64_t from) const {
  const auto [first, last] = samples_in(block);
  int64_t soonest = std::numeric_limits<int64_t>::max();
  for (int64_t sample = first; sample < last; ++sample) {
    int64_t at = order_.next_use(sample, from);
    for (int tried = 0; tried < most_epochs && at < soonest && !share_.has(at); ++tried) at = order_.next_use(sample, at + 1);
    soonest = std::min(soonest, at);
  }
  return soonest;
}

std::vector<BlockId> BlockUse::blocks_of(int64_t sample) const {
  std::vector<BlockId> blocks;
  for (const Part& part : dataset_.parts(sample))
    for (int64_t b = part.offset / block_bytes; b * block_bytes < part.offset + part.size; ++b)
      blocks.push_back({static_cast<uint32_t>(dataset_.shard_id_of(sample)), static_cast<uint32_t>(b)});
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  return blocks;
}

}  // namespace mm::data
