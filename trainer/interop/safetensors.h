// SPDX-License-Identifier: Apache-2.0
// Tensors of safetensors files as numbers of the trainer. The format itself is read and written by common/safetensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/safetensors/file.h"

namespace mm::interop {

using safetensors::TensorInfo;

class Safetensors : public safetensors::File {
 public:
  using File::File;
  // Reads a tensor of dtype F64, F32, F16 or BF16 into `to`, which has room for its elements, rounded where T is narrower.
  void read(const std::string& name, float* to) const;
  void read(const std::string& name, double* to) const;
};

// A Hugging Face folder. Throws a usage Error.
using ModelFolder = safetensors::ModelFolder<Safetensors>;

struct TensorView {
  std::string name;
  std::vector<int64_t> shape;
  const void* data = nullptr;
};
// Writes tensors of one dtype, durably.
void write_safetensors(const std::string& path, const std::string& dtype, const std::vector<TensorView>& tensors);

}  // namespace mm::interop
