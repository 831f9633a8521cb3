// SPDX-License-Identifier: Apache-2.0
// The payload of a rank file of which some is compressed: block after block from payload_begin on, without gaps. Threads take
// blocks, compress and hash them, and get their place in the order of the blocks, so that the file does not depend on who was
// faster; each writes its own. No more than two blocks a thread are in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/index.h"
#include "checkpoint/io.h"
#include "checkpoint/pace.h"
#include "checkpoint/rows.h"

namespace mm::checkpoint {

struct CompressedPayload {
  std::vector<uint64_t> hashes;
  uint64_t end = 0;  // in the file
};

// Sets `offset` or `frames` of each entry, whose payload lies at the rows of the same number. Throws what the first thread met.
CompressedPayload write_compressed(io::File& file, std::vector<Entry>& entries, const std::vector<Rows>& rows, int threads,
                                   Pace* pace);

}  // namespace mm::checkpoint
