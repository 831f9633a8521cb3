// SPDX-License-Identifier: Apache-2.0
// One rank's file of a step, read with every byte checked against its hash. rank_file_writer.h writes it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/index.h"
#include "checkpoint/io.h"
#include "checkpoint/manifest.h"

namespace mm::checkpoint {

// `count` bytes at `source` of an entry's payload go to `target`.
struct Run {
  uint64_t source = 0, count = 0;
  char* target = nullptr;
};

class RankFile {
 public:
  // Reads the index. Throws BadStep for what does not hold, io::Failure for what cannot be read now.
  RankFile(std::string path, const FileRecord& record, const Identity& identity);
  const std::string& path() const { return path_; }
  const std::vector<Entry>& entries() const { return entries_; }

  // For the two below; checks type and size.
  io::File open() const;
  // Checks every byte that is not payload, and keeps the payload's hashes. Does nothing the second time.
  void check_structure(const io::File& file);
  // Reads a block of an entry and checks it, then copies `runs` of it, which lie within it, to their targets; without runs it is
  // only checked. After check_structure. From any thread; `scratch` is the thread's own.
  void read_block(const io::File& file, const Entry& entry, uint64_t block, std::span<const Run> runs,
                  std::vector<char>& scratch) const;

 private:
  std::string path_;
  FileRecord record_;
  std::vector<Entry> entries_;
  std::vector<uint64_t> hashes_;
  bool checked_ = false;
};

}  // namespace mm::checkpoint
