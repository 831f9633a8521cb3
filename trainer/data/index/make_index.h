// SPDX-License-Identifier: Apache-2.0
// What `mm-data index` does: an index for each shard, then one version of the data set.
//
// Under the folder's lock, shards are read and hashed, several at once; the index of each is published by rename as soon as it
// is done. One that is there and fits its shard's size and time is taken as it is: so a run that was killed goes on where it
// was, and a second writer that waited for the first finds everything done. The version comes last, when every index is there.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainer/data/index/version.h"

namespace mm::data {

struct IndexOptions {
  std::vector<std::string> paths = {};  // one folder: the version is of the shards in it; or patterns of shards of one folder, which
                                   // are added to the newest version
  std::string out = {};            // the folder for the indexes and dataset.json; empty: that of the shards
  int jobs = 1;                    // shards at once
  std::chrono::milliseconds lease = std::chrono::seconds(30);
  std::function<void(const std::string& holder)> waiting = {};                                        // for the lock
  std::function<void(int64_t shards, int64_t of_shards, int64_t bytes, int64_t of_bytes)> progress = {};  // any thread, one at a time
};

struct IndexResult {
  std::string folder;
  Version version;
  bool published = false;                   // false: the newest version was this one already
  int64_t hashed = 0, reused = 0, kept = 0;  // shards; kept: of the parent, not named
  int64_t hashed_bytes = 0;
};

// Throws a data Error that names the shard and the place where one cannot be read; indexes that are done stay.
IndexResult make_index(const IndexOptions& options);

}  // namespace mm::data
