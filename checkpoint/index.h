// SPDX-License-Identifier: Apache-2.0
// The index of a rank file, dataset /mm/index: which boxes of which tensors lie where in the file, and whose save they belong
// to. Little-endian:
//   "mmindex1", writer (16 characters), i64 step, u32 rank, u32 ranks, u64 entries, then for each entry
//   u32 length + name, u32 length + role, u8 dtype, u8 dimensions, i64 global shape[], offset[], shape[], u64 file offset, u64
//   first block
// where `first block` is the place of the entry's first hash in /mm/hash: one u64 XXH3 for each 4 MiB of its payload.
// A reader needs this and the manifest only; it never gives the file to the HDF5 library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace mm::checkpoint {

struct Entry {
  std::string name, role;
  DType dtype = DType::float32;
  Extents global_shape;
  Box box;
  uint64_t offset = 0;  // in the file; 0 where there is no payload
  uint64_t first_block = 0;

  uint64_t bytes() const { return static_cast<uint64_t>(elements(box.shape)) * size_of(dtype); }
  uint64_t blocks() const;
};

struct Identity {
  std::string writer;
  int64_t step = 0;
  int rank = 0, ranks = 1;

  bool operator==(const Identity&) const = default;
};

struct RankIndex {
  Identity identity;
  std::vector<Entry> entries;
};

std::string encode(const RankIndex& index);
// Checks every length, extent and offset against the file's size and its number of hashes, and that no two payloads overlap.
// Throws BadStep that begins with `where`.
RankIndex decode_index(const std::string& blob, uint64_t file_size, uint64_t hash_count, const std::string& where);

struct Range {
  uint64_t begin = 0, end = 0;
};
// The parts of the file that are not payload, ascending.
std::vector<Range> structure_ranges(const std::vector<Entry>& entries, uint64_t file_size);

// A tensor name or a role as one HDF5 path component: bytes other than A-Z a-z 0-9 _ - . as %XX, the dots of "." and ".." too;
// "" is "%".
std::string path_component(const std::string& name);

}  // namespace mm::checkpoint
