// SPDX-License-Identifier: Apache-2.0
// What a job file's data.cache means on this node: its folder and, where the cache is encrypted, its key.
//
// Without a folder of its own the job gets one from the agent of the node, which makes it for the job's user alone and removes
// it when the job ends, whatever became of the job's processes. The key is the agent's, too, the same for all processes of the
// job on the node, and gone with the agent: what an agent before it had encrypted is then rubbish, and removed when it is met.
#pragma once

#include "common/job.h"
#include "trainer/data/cache/block_cache.h"

namespace mm::data {

// Warns where a tier cannot be had, and leaves it out.
CacheOptions cache_of(const Job& job);

}  // namespace mm::data
