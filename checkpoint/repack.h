// SPDX-License-Identifier: Apache-2.0
// Makes a step of whole tensors that come from elsewhere: another step (reshard) or a Hugging Face folder (import). One rank
// file after the other, so that no more than one is in memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/step_reader.h"

namespace mm::checkpoint {

struct TensorMeta {
  std::string name, role;
  DType dtype = DType::float32;
  Extents shape;
  uint64_t bytes() const { return static_cast<uint64_t>(elements(shape)) * size_of(dtype); }
};

struct Repacked {
  size_t tensors = 0;
  uint64_t bytes = 0, stored = 0;
  int files = 0;
};

// Into so many files, of large tensors compressed or not.
struct Packing {
  int ranks = 1;
  bool compress = false;
};

// `read` fills views of a few boxes. The bytes are spread evenly over the files. An existing step of that number is replaced in
// one operation. `progress`: bytes done.
Repacked repack(const std::string& run, int64_t step, const Facts& facts, std::vector<TensorMeta> tensors, const Packing& packing,
                const std::function<void(const std::vector<View>&)>& read, const std::function<void(uint64_t)>& progress);

// All tensors of a step, as a step of the same number of another run (or of its own) in so many files.
Repacked reshard(StepReader& step, const std::string& run, const Packing& packing, const std::function<void(uint64_t)>& progress);
// The tensors of a Hugging Face folder with the role "param"; its config.json and preprocessor_config.json become facts.
Repacked import_safetensors(const std::string& folder, const std::string& run, int64_t step, const Packing& packing,
                            const std::function<void(uint64_t)>& progress);

}  // namespace mm::checkpoint
