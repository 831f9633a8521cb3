// SPDX-License-Identifier: Apache-2.0
// Fencing: which of several writers of a run may save, and which steps belong to a past that was given up.
//
// A run that starts to save claims the next epoch by a file epoch-0000007 in RUN/checkpoints, which says from which step it
// continues. The file appears in one step by link(2), which fails where the name is taken, so that two writers never get one
// epoch, on network file systems too and without a lock that could become stale. From then on a writer of an older epoch cannot
// commit; and where it did so in the last moment, its step lies beyond the point from which the newer writer continued, and is
// never loaded: the two would be parts of different histories.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mm::checkpoint {

struct Claim {
  int64_t epoch = 0;
  std::optional<int64_t> resumed_from;  // steps that were done; absent: not known, and nothing is given up
  std::string who;                      // host and process, for messages
};

// Ascending. A claim that cannot be read counts as one that does not know where it continues.
std::vector<Claim> list_claims(const std::string& checkpoints);
// Makes the next claim durable and returns its epoch. Removes claims that newer ones make meaningless.
int64_t claim_epoch(const std::string& checkpoints, std::optional<int64_t> resumed_from);
// The newer claim that gave up the step of a writer of `epoch`; nullopt: the step stands. Epoch 0: saved without a claim.
std::optional<Claim> given_up(const std::vector<Claim>& claims, int64_t epoch, int64_t step);
// Throws io::Failure (ESTALE) where there is a newer claim than `epoch`.
void check_epoch(const std::string& checkpoints, int64_t epoch);

}  // namespace mm::checkpoint
