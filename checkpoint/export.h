// SPDX-License-Identifier: Apache-2.0
// The tensors of role "param" of a step as a Hugging Face folder: model.safetensors, or shards of a limited size with an index,
// and config.json.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "checkpoint/step_reader.h"

namespace mm::checkpoint {

struct Exported {
  size_t tensors = 0, files = 0;
  uint64_t bytes = 0;
  bool config = false;  // whether the step knows a config.json
};

// Writes to `folder`, which is made. Shards hold at most `shard_bytes`, or one tensor. A file is replaced only by a complete
// one, and the index comes last. Checks every hash; holds 64 MiB in memory. `progress`: bytes done.
Exported export_safetensors(StepReader& step, const std::string& folder, uint64_t shard_bytes,
                            const std::function<void(uint64_t)>& progress);

}  // namespace mm::checkpoint
