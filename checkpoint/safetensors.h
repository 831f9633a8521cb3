// SPDX-License-Identifier: Apache-2.0
// The tensors of one role of a step as a safetensors file: 8 bytes of header length, a JSON header padded with spaces to a
// multiple of 8, then the tensors one after the other, wider types first, so that each is aligned to its type.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "checkpoint/step_reader.h"

namespace mm::checkpoint {

struct Exported {
  size_t tensors = 0;
  uint64_t bytes = 0;
  bool config = false;  // whether the step knows a config.json
};

// Writes FOLDER/model.safetensors with the tensors of role "param" and, from the fact model_config, FOLDER/config.json; the
// folder is made. Files of these names are replaced only by complete ones. Holds one tensor in memory at a time, and checks
// every hash. `progress`: bytes done.
Exported export_safetensors(StepReader& step, const std::string& folder, const std::function<void(uint64_t)>& progress);

}  // namespace mm::checkpoint
