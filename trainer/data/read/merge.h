// SPDX-License-Identifier: Apache-2.0
// Which reads serve many small requests best: neighbours become one, what is large becomes several.
//
// Invariants: every byte of every request is in exactly one read; a read is at most `largest` bytes; a read that serves several
// requests has no hole wider than `gap` between them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/data/read/byte_source.h"

namespace mm::data {

struct MergeRule {
  int64_t gap = 64 << 10;
  int64_t largest = 512 << 10;
};

struct MergedRead {
  uint32_t shard = 0;
  int64_t offset = 0, size = 0;
  std::vector<uint32_t> requests;  // that it serves; with one, the read lies within it
};

std::vector<MergedRead> merge_requests(std::span<const Request> requests, const MergeRule& rule = {});

}  // namespace mm::data
