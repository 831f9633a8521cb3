// SPDX-License-Identifier: Apache-2.0
// Writes one rank's file of a step in one pass: space reserved, payload hashed block by block as it streams out, then hashes,
// index and structure, fsync, close. Every byte is written once. A file whose payload is compressed grows as it is written, for
// how long it will be is not known before; the same views make the same bytes, whatever the number of threads.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/index.h"
#include "checkpoint/io.h"
#include "checkpoint/manifest.h"
#include "checkpoint/pace.h"
#include "checkpoint/skeleton.h"

namespace mm::checkpoint {

// The structure of the last file, which the next one of the same tensors and boxes repeats but for index and hashes.
class SkeletonCache {
 public:
  // As make_skeleton. The reference holds until the next call.
  Skeleton& get(std::vector<Entry>& entries, uint64_t index_bytes, uint64_t hash_count);

 private:
  std::string key_;
  Skeleton skeleton_;
  std::vector<uint64_t> offsets_;
};

struct WriteOptions {
  int threads = 1;          // that hash and write
  bool background = false;  // those threads run where a core is idle
  bool compress = false;    // large tensors
  Pace* pace = nullptr;
  SkeletonCache* skeletons = nullptr;
};

// A new file. Throws Error: io::Failure, or what is wrong with the views.
FileRecord write_rank_file(const std::string& path, const Identity& identity, const std::vector<ConstView>& views,
                           const WriteOptions& options = {});
// The same into an empty file that is open, without fsync.
FileRecord fill_rank_file(io::File& file, const Identity& identity, const std::vector<ConstView>& views,
                          const WriteOptions& options);

}  // namespace mm::checkpoint
