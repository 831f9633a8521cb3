// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/cache/stage.h"

#include <chrono>
#include <set>
#include <utility>
#include <vector>

namespace mm::data {

StageResult stage_blocks(BlockCache& cache, const BlockUse& use, int64_t position, const std::function<void(const StageResult&)>& told) {
  cache.at(position);
  std::vector<BlockId> blocks, busy;
  std::set<BlockId> seen;
  for (int64_t p = position; p < position + use.order().samples(); ++p)
    for (const BlockId& id : use.blocks_of(use.order()(p)))
      if (seen.insert(id).second) blocks.push_back(id);
  StageResult result;
  result.wanted = static_cast<int64_t>(blocks.size());
  const auto take = [&](const BlockId& id, std::chrono::milliseconds patience) {
    switch (cache.warm(id, patience)) {
      case BlockCache::Warm::there: ++result.there; break;
      case BlockCache::Warm::fetched: ++result.fetched; break;
      case BlockCache::Warm::full: ++result.left; break;
      case BlockCache::Warm::busy: busy.push_back(id); return;
    }
    told(result);
  };
  for (const BlockId& id : blocks) take(id, std::chrono::milliseconds(0));
  for (const BlockId& id : std::exchange(busy, {})) take(id, std::chrono::seconds(30));
  result.left += static_cast<int64_t>(busy.size());
  return result;
}

}  // namespace mm::data
