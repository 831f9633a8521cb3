// SPDX-License-Identifier: Apache-2.0
// The index of a rank file, dataset /mm/index: which boxes of which tensors lie where in the file, and whose save they belong
// to. Little-endian:
//   "mmindex2", writer (16 characters), i64 step, u32 rank, u32 ranks, u64 entries, then for each entry
//   u32 length + name, u32 length + role, u8 dtype, u8 dimensions, i64 global shape[], offset[], shape[], u64 file offset, u64
//   first block, u8 form, and where the form has bit 0 set u64 file offset and u32 bytes for each block
// where `first block` is the place of the entry's first hash in /mm/hash: one u64 XXH3 for each block. A block is 4 MiB of
// payload, or 256 KiB where the form has bit 1 set: then the entry is one of several that a box was cut to, and a load may want a
// few rows of each. Bit 0: the payload is compressed; a block is an HDF5 chunk, kept as a Blosc frame, whose bytes are hashed.
// "mmindex1", which earlier versions wrote, has no forms; all its blocks are 4 MiB as they are.
// A reader needs this and the manifest only; it never gives the file to the HDF5 library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace mm::checkpoint {

struct Range {
  uint64_t begin = 0, end = 0;
};

// How an entry's payload is cut into blocks: slabs of so many bytes, each in pieces from its begin on. A compressed entry's piece
// is an HDF5 chunk, a few whole rows; all others are one slab.
struct Blocks {
  uint64_t slabs = 0, slab = 0, piece = 1;

  uint64_t per_slab() const { return (slab + piece - 1) / piece; }
  uint64_t count() const { return slabs * per_slab(); }
  uint64_t at(uint64_t byte) const { return byte / slab * per_slab() + byte % slab / piece; }
  Range span(uint64_t block) const;  // of the payload
};

struct Entry {
  std::string name, role;
  DType dtype = DType::float32;
  Extents global_shape;
  Box box;
  uint64_t offset = 0;  // in the file; 0 where there is no payload, or where it is compressed
  uint64_t first_block = 0;
  bool compressed = false, fine = false;  // fine: blocks of 256 KiB
  struct Frame {
    uint64_t offset = 0;
    uint32_t bytes = 0;
  };
  std::vector<Frame> frames{};  // of a compressed entry, one for each block

  uint64_t bytes() const { return static_cast<uint64_t>(elements(box.shape)) * size_of(dtype); }
  Blocks blocks() const;
  Extents chunk() const;  // of a compressed entry: the extents of one block; those at the end of a slab are filled up with zeros
  // Where a block lies in the file.
  Range stored(uint64_t block) const;
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

// The parts of the file that are not payload, ascending.
std::vector<Range> structure_ranges(const std::vector<Entry>& entries, uint64_t file_size);

// A tensor name or a role as one HDF5 path component: bytes other than A-Z a-z 0-9 _ - . as %XX, the dots of "." and ".." too;
// "" is "%".
std::string path_component(const std::string& name);

}  // namespace mm::checkpoint
