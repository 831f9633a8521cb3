// SPDX-License-Identifier: Apache-2.0
// One save, from the views of all ranks to a committed step. The protocol is told in commit.cc.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/compression_choice.h"
#include "checkpoint/owners.h"
#include "checkpoint/rank_file_writer.h"

namespace mm::checkpoint {

// What a run folder remembers between saves.
struct Writer {
  int64_t epoch = 0;                    // 0: none claimed yet; rank 0 only
  std::optional<int64_t> resumed_from;  // where a claim would say that it continues
  Owners owners;
  SkeletonCache skeletons;
  CompressionChoice compression;
};

// The views of a rank that it is to write.
std::vector<ConstView> without_replicas(Owners& owners, Group& group, const std::vector<ConstView>& shown);

struct SaveTask {
  int64_t step = 0;
  std::vector<ConstView> mine;  // that this rank writes
  Facts facts;
  std::string problem;  // why this rank cannot, unless it is empty
  bool shared = true;   // to the shared file system
};
// Collective. `near` may be none.
SaveResult save_step(const std::string& checkpoints, Writer& writer, Group& group, NearCopies* near, const SaveTask& task,
                     const WriteOptions& options);

// The parts of it that one process that writes the files of several ranks needs. Each throws Error.
// A new name for a save; claims an epoch, if this is the writer's first.
std::string name_save(const std::string& checkpoints, Writer& writer, int64_t step);
// Makes the private folder of a save, whose name is `name` then.
std::string start_save(const std::string& checkpoints, Writer& writer, int64_t step, std::string& name);
// Checks that the files, in the order of ranks and durable, hold whole tensors, and publishes the step.
void commit_files(const std::string& checkpoints, const std::string& private_folder, const Manifest& manifest);

// On rank 0: see RunFolder::retain. Throws io::Failure.
void retain_steps(const std::string& checkpoints, const Keep& keep);

}  // namespace mm::checkpoint
