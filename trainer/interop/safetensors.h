// SPDX-License-Identifier: Apache-2.0
// The safetensors format: u64 little-endian header length, a JSON header of {name: {dtype, shape, data_offsets}}, then
// row-major data. A file is hostile until its header has been checked whole: every offset lies in the file and belongs to one
// tensor, sizes agree with shapes, no key stands twice. Errors name the file, the tensor and the reason.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/files.h"

namespace mm::interop {

struct TensorInfo {
  std::string dtype;  // F64, F32, F16, BF16, I64, ...
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes of the file
  int64_t elements() const;
};

class Safetensors {
 public:
  // Opens the file and checks its header. Throws a usage Error.
  explicit Safetensors(const std::string& path);
  const std::string& path() const { return path_; }
  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  // Reads a tensor of dtype F64, F32, F16 or BF16 into `to`, which has room for its elements, rounded where T is narrower.
  void read(const std::string& name, float* to) const;
  void read(const std::string& name, double* to) const;

 private:
  std::string path_;
  UniqueFd fd_;
  std::map<std::string, TensorInfo> tensors_;
};

// One or several files that make up the tensors of a Hugging Face folder: model.safetensors, or the shards that
// model.safetensors.index.json names. Throws a usage Error, also for a tensor that the index places in a shard that lacks it.
class ModelFolder {
 public:
  explicit ModelFolder(const std::string& folder);
  const std::string& path() const { return folder_; }
  // Name of each tensor -> the file that holds it.
  const std::map<std::string, const Safetensors*>& tensors() const { return where_; }

 private:
  std::string folder_;
  std::map<std::string, Safetensors> files_;
  std::map<std::string, const Safetensors*> where_;
};

struct TensorView {
  std::string name;
  std::vector<int64_t> shape;
  const void* data = nullptr;
};
// Writes tensors of one dtype, durably, in the order of their names.
void write_safetensors(const std::string& path, const std::string& dtype, std::vector<TensorView> tensors);

}  // namespace mm::interop
