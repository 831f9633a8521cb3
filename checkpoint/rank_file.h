// SPDX-License-Identifier: Apache-2.0
// One rank's file of a step, read with every byte checked against its hash. rank_file_writer.h writes it.
#pragma once

#include <functional>
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
  // Reads the blocks that `runs` (ascending in source) touch, each whole, and checks each; after check_structure.
  void read(const io::File& file, const Entry& entry, const std::vector<Run>& runs) const;
  // Checks all of an entry's payload. `progress` gets the bytes of each block.
  void check_payload(const io::File& file, const Entry& entry, const std::function<void(uint64_t)>& progress) const;

 private:
  void check_block(const Entry& entry, uint64_t block, const char* data, uint64_t bytes) const;

  std::string path_;
  FileRecord record_;
  std::vector<Entry> entries_;
  std::vector<uint64_t> hashes_;
  bool checked_ = false;
};

}  // namespace mm::checkpoint
