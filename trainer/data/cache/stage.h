// SPDX-License-Identifier: Apache-2.0
// Warms a cache in the order in which a run will need it. Several that warm the same folder share the work: each takes the next
// block that no other is at, and comes back to those at the end.
#pragma once

#include <cstdint>
#include <functional>

#include "trainer/data/cache/block_cache.h"

namespace mm::data {

struct StageResult {
  int64_t wanted = 0;   // blocks that the samples lie in
  int64_t there = 0;    // found, or fetched by others meanwhile
  int64_t fetched = 0;
  int64_t left = 0;     // for which there was no room
};
// From the position on, one epoch; until the cache is full of what is needed sooner. `told` after each block.
StageResult stage_blocks(BlockCache& cache, const BlockUse& use, int64_t position, const std::function<void(const StageResult&)>& told);

}  // namespace mm::data
