// SPDX-License-Identifier: Apache-2.0
// Makes WebDataset shards of folders of pictures. The same pictures and options give the same bytes, for any number of threads:
// samples come in the order of a hash of their keys (a mixture of all folders, also for a reader that goes straight through).
// The held-out part is chosen by a hash of the picture's bytes: it never changes when pictures are added, and copies of a
// picture never stand on both sides.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainer/data/pack/shard_writer.h"

namespace mm::data {

struct PackOptions {
  std::vector<std::string> sources;
  std::string out;
  int max_side = 0;  // 0: sizes as they are
  ShardLimits limits;
  double holdout_percent = 0;    // 0: no heldout-*.tar
  int threads = 0;               // 0: the CPUs that the process may use
  std::string caption = "path";  // or a file of PATH<tab>CAPTION
  bool replace = false;
};

struct PackResult {
  int64_t pictures = 0, train = 0, heldout = 0, shards = 0, bytes = 0, rejected = 0;
};

struct PackProgress {
  std::function<void(int64_t done, int64_t of)> step = [](int64_t, int64_t) {};
  std::function<void(const std::string& path, const std::string& reason)> rejected = [](const std::string&,
                                                                                        const std::string&) {};
};

// Writes OUT/train-*.tar and OUT/heldout-*.tar. A picture that does not decode, or has no caption, is skipped, counted and
// reported. Throws a usage Error where sources or OUT are unfit, a data Error where nothing could be packed.
PackResult pack(const PackOptions& options, const PackProgress& progress);

}  // namespace mm::data
