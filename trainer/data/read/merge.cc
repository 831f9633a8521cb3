// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/read/merge.h"

#include <algorithm>
#include <numeric>

namespace mm::data {

std::vector<MergedRead> merge_requests(std::span<const Request> requests, const MergeRule& rule) {
  std::vector<uint32_t> order(requests.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, [&](uint32_t a, uint32_t b) {
    return requests[a].shard != requests[b].shard ? requests[a].shard < requests[b].shard : requests[a].offset < requests[b].offset;
  });
  std::vector<MergedRead> reads;
  bool open = false;  // the last read may take more
  for (const uint32_t i : order) {
    const Request& r = requests[i];
    const auto size = static_cast<int64_t>(r.to.size());
    if (size == 0) continue;
    if (size > rule.largest) {
      for (int64_t at = 0; at < size; at += rule.largest) reads.push_back({r.shard, r.offset + at, std::min(rule.largest, size - at), {i}});
      open = false;
      continue;
    }
    if (open) {
      MergedRead& last = reads.back();
      const int64_t end = std::max(last.offset + last.size, r.offset + size);
      if (last.shard == r.shard && r.offset - (last.offset + last.size) <= rule.gap && end - last.offset <= rule.largest) {
        last.size = end - last.offset;
        last.requests.push_back(i);
        continue;
      }
    }
    reads.push_back({r.shard, r.offset, size, {i}});
    open = true;
  }
  return reads;
}

}  // namespace mm::data
