// SPDX-License-Identifier: Apache-2.0
// Writes a safetensors file tensor by tensor. It appears under its name only when it is complete and on the disk. Tensors lie
// wider types first, then by name, so that each is aligned to its type.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/files.h"
#include "common/safetensors/header.h"

namespace mm::safetensors {

class Writer {
 public:
  // Of each tensor only dtype and shape count. Throws an Error that names the file; a usage Error where a name stands twice.
  Writer(const std::string& path, std::vector<std::pair<std::string, TensorInfo>> tensors);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // In the order in which the data lie in the file.
  const std::vector<std::pair<std::string, TensorInfo>>& tensors() const { return tensors_; }
  // The data, one after the other.
  void append(const void* data, size_t bytes);
  // After all data.
  void finish();

 private:
  std::string path_, temporary_;
  UniqueFd fd_;
  std::vector<std::pair<std::string, TensorInfo>> tensors_;
  uint64_t left_ = 0;
};

}  // namespace mm::safetensors
