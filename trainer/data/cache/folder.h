// SPDX-License-Identifier: Apache-2.0
// The folder of a cache on disk, as all processes of its user see it: it is private, LOCK in it counts bytes and holds locks (see
// disk_tier.h), and whoever may not have it gets an Error.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/files.h"
#include "trainer/data/index/hash.h"

namespace mm::data {

inline constexpr const char* cache_lock_name = "LOCK";

// Opens the folder, making it where it is absent. Throws a usage Error where it is not the user's alone.
UniqueFd open_private_folder(const std::string& folder);

UniqueFd open_cache_lock(int root, const std::string& folder);
// Locks a range of LOCK, for the open file; false where another has it all the time. It is free when the file is closed.
bool lock_cache_bytes(int fd, off_t start, off_t length, std::chrono::milliseconds patience);

// The count of bytes in the folder: as long as this lives, nobody else changes it or the folder's files.
class CacheLedger {
 public:
  CacheLedger(int root, const std::string& folder);
  void write();
  int64_t used = 0;

 private:
  UniqueFd fd_;
};

struct CachedFile {
  Hash128 name;
  int64_t bytes = 0;
};
std::vector<CachedFile> list_cached_files(int root, const std::string& folder);

}  // namespace mm::data
