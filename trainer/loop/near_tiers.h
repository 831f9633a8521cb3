// SPDX-License-Identifier: Apache-2.0
// What the job file says of how checkpoints are kept. Copies that are nearer than the shared file system (checkpoint.tiers), as
// this rank's node has them: memory, and a folder on the node's disk, are given by the node's agent.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "common/job.h"

namespace mm::loop {

// Before the load. Collective. A tier that cannot be had is left out; returns why, of all ranks, the same on all of them.
std::vector<std::string> use_near_tiers(checkpoint::RunFolder& folder, checkpoint::Group& group, const Job& job);

checkpoint::Compression compression_of(const Job& job);

}  // namespace mm::loop
