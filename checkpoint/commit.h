// SPDX-License-Identifier: Apache-2.0
// One save, from the views of all ranks to a committed step. The protocol is told in commit.cc.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/owners.h"
#include "checkpoint/rank_file_writer.h"

namespace mm::checkpoint {

// What a run folder remembers between saves.
struct Writer {
  int64_t epoch = 0;                    // 0: none claimed yet; rank 0 only
  std::optional<int64_t> resumed_from;  // where a claim would say that it continues
  Owners owners;
  SkeletonCache skeletons;
};

// The views of a rank that it is to write.
std::vector<ConstView> without_replicas(Owners& owners, Group& group, const std::vector<ConstView>& shown);

// Collective. `mine` are the views that this rank writes; `problem` is why it cannot, unless it is empty.
SaveResult save_step(const std::string& checkpoints, Writer& writer, Group& group, int64_t step,
                     const std::vector<ConstView>& mine, const Facts& facts, const WriteOptions& options,
                     const std::string& problem = "");

// On rank 0: see RunFolder::retain. Throws io::Failure.
void retain_steps(const std::string& checkpoints, const Keep& keep);

}  // namespace mm::checkpoint
