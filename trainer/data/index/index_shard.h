// SPDX-License-Identifier: Apache-2.0
// Makes the index of a shard from the shard.
#pragma once

#include <functional>

#include "trainer/data/dataset.h"
#include "trainer/data/index/shard_index.h"

namespace mm::data {

// Reads headers alone, for a shard without an index. `shard` is as open_shard left it. Throws a data Error that names the place.
ShardIndex scan_shard(const Shard& shard, int fd);
// Reads the shard once, from its beginning to its end in blocks, and hashes blocks and parts on the way. `progress` is told how
// many bytes were read since it was told last, and may throw to stop.
ShardIndex hash_shard(const Shard& shard, int fd, const std::function<void(int64_t bytes)>& progress);

}  // namespace mm::data
