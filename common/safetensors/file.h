// SPDX-License-Identifier: Apache-2.0
// Reading safetensors files, and Hugging Face folders of them. See header.h for what is checked.
#pragma once

#include <map>
#include <string>

#include "common/error.h"
#include "common/files.h"
#include "common/safetensors/header.h"

namespace mm::safetensors {

class File {
 public:
  // Opens the file and checks its header. Throws a usage Error.
  explicit File(const std::string& path);
  const std::string& path() const { return path_; }
  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  // Bytes [offset, offset + bytes) of a tensor's data, which must lie within it. Throws a data Error.
  void read(const TensorInfo& tensor, uint64_t offset, uint64_t bytes, void* to) const;

 private:
  std::string path_;
  UniqueFd fd_;
  std::map<std::string, TensorInfo> tensors_;
};

// One or several files that make up the tensors of a Hugging Face folder: model.safetensors, or the shards that
// model.safetensors.index.json names. Throws a usage Error, also for a tensor that the index places in a shard that lacks it.
template <class F>
class ModelFolder {
 public:
  explicit ModelFolder(const std::string& folder);
  const std::string& path() const { return folder_; }
  // Name of each tensor -> the file that holds it.
  const std::map<std::string, const F*>& tensors() const { return where_; }

 private:
  std::string folder_;
  std::map<std::string, F> files_;
  std::map<std::string, const F*> where_;
};

// Tensor name -> file name, as the folder's index has it; empty where the folder has a single file.
std::map<std::string, std::string> placement(const std::string& folder);

template <class F>
ModelFolder<F>::ModelFolder(const std::string& folder) : folder_(folder) {
  const std::map<std::string, std::string> placed = placement(folder);
  if (placed.empty()) {
    const auto [file, made] = files_.emplace("model.safetensors", F(folder + "/model.safetensors"));
    for (const auto& [name, info] : file->second.tensors()) where_[name] = &file->second;
    return;
  }
  const std::string index = folder + "/model.safetensors.index.json";
  for (const auto& [name, file] : placed) {
    auto found = files_.find(file);
    if (found == files_.end()) found = files_.emplace(file, F(folder + "/" + file)).first;
    if (!found->second.tensors().contains(name))
      throw usage_error(index + ": tensor " + name + " is not in " + found->second.path());
    where_[name] = &found->second;
  }
  for (const auto& [name, file] : files_)
    for (const auto& [tensor, info] : file.tensors())
      if (where_[tensor] != &file)
        throw usage_error(index + ": tensor " + tensor + " of " + file.path() + " is not in the index, or in another shard");
}

}  // namespace mm::safetensors
