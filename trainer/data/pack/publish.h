// SPDX-License-Identifier: Apache-2.0
// A folder that appears whole or not at all. It is filled as ".NAME.packing" beside its final place, under a lock, and renamed
// there when complete. What a killed writer left is removed by the next; two writers at once are refused. An old folder is
// exchanged for the new one in a single step, and only when it holds nothing but shards.
#pragma once

#include <string>

#include "common/files.h"

namespace mm::data {

class FolderInProgress {
 public:
  // Throws a usage Error where `final_path` exists with content and `replace` is false, or holds other things than shards.
  FolderInProgress(const std::string& final_path, bool replace);
  ~FolderInProgress();  // removes the unfinished folder
  FolderInProgress(const FolderInProgress&) = delete;
  FolderInProgress& operator=(const FolderInProgress&) = delete;

  const std::string& path() const { return path_; }
  void publish();

 private:
  std::string final_, path_;
  UniqueFd lock_;
  bool exchange_ = false;
};

}  // namespace mm::data
