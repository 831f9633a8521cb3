// SPDX-License-Identifier: Apache-2.0
// A node that is taken out of a job and still lives: what only it has of the newest steps goes to the shared file system, into
// RUN/checkpoints/.scavenged, which is laid out as a node's folder (checkpoint/node_store.h). The ranks of the next launch, which
// run elsewhere, find it there as one more copy, and it goes when they have saved.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace mm::checkpoint {

std::string scavenged_folder(const std::string& checkpoints);

struct Scavenged {
  int files = 0;
  uint64_t bytes = 0;
  int64_t newest = -1;                // step; -1: none
  std::vector<std::string> problems;  // copies that do not verify, tiers that cannot be had
};
// Copies the rank files that the memory and the disk of this node have, each checked against the hashes of its step where it
// arrives. What is there already stays. Throws Error where the shared file system fails.
Scavenged scavenge(const std::string& run, const Tiers& tiers);

}  // namespace mm::checkpoint
