// SPDX-License-Identifier: Apache-2.0
// The list of samples that could not be used, for people who clean data: a JSON line for each, once over all restarts, with shard,
// offset, reason and a hash of the key, but no text of the sample.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>

#include "common/files.h"
#include "trainer/data/dataset.h"

namespace mm::data {

class Quarantine {
 public:
  // The file is made, with its folder, when there is something to write. An empty path: no list.
  explicit Quarantine(std::string path) : path_(std::move(path)) {}
  // Any thread. A list that cannot be written is warned of once; training goes on.
  void add(const Dataset& dataset, int64_t sample, std::string_view reason);

 private:
  void open();

  const std::string path_;
  std::mutex mutex_;
  UniqueFd file_;
  bool failed_ = false;
  std::unordered_set<std::string> known_;  // lines
};

}  // namespace mm::data
