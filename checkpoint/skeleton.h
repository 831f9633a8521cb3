// SPDX-License-Identifier: Apache-2.0
// The HDF5 structure of a rank file, without payload. The HDF5 library builds it in memory (payload is only reserved and takes
// no space), is closed, and never sees the file on disk: what it leaves open or buffered when a process dies cannot spoil a
// checkpoint, and its lock is not held while payload is written.
//
// The result is an ordinary HDF5 file (version 1.8 and later): contiguous datasets /t/NAME/ROLE/K, percent-encoded, with
// attributes name, role, global_shape, offset and dtype; bfloat16 as the committed float type /types/bfloat16; /mm/index and
// /mm/hash. A compressed entry is a chunked dataset with filter 32001. How long its chunks are is known only when they have been
// written, so of such a file the payload comes first and the structure behind it.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/index.h"

namespace mm::checkpoint {

struct Skeleton {
  struct Piece {
    uint64_t offset = 0;
    std::string bytes;
  };
  uint64_t size = 0;             // of the whole file
  std::vector<Piece> structure;  // all that is not payload, ascending; index and hashes are still zero in it
  uint64_t index_offset = 0, hash_offset = 0;

  // Overwrites a part of the structure.
  void patch(uint64_t offset, const std::string& bytes);
};

// Sets `offset` of each entry. Throws Error where the library fails.
Skeleton make_skeleton(std::vector<Entry>& entries, uint64_t index_bytes, uint64_t hash_count);

// Of entries whose payload lies in the file already, between payload_begin and `payload_end`.
inline constexpr uint64_t payload_begin = 4096;
Skeleton make_skeleton_behind(std::vector<Entry>& entries, uint64_t index_bytes, uint64_t hash_count, uint64_t payload_end);

}  // namespace mm::checkpoint
