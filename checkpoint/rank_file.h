// SPDX-License-Identifier: Apache-2.0
// One rank's file of a step, read with every byte checked against its hash, from the first of its copies that holds.
// rank_file_writer.h writes it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/index.h"
#include "checkpoint/manifest.h"
#include "checkpoint/source.h"

namespace mm::checkpoint {

// `count` bytes at `source` of an entry's payload go to `target`.
struct Run {
  uint64_t source = 0, count = 0;
  char* target = nullptr;
};

class RankFile {
 public:
  // Reads the index. Throws BadStep for what does not hold in any copy, io::Failure for what cannot be read now.
  RankFile(std::vector<Place> places, const FileRecord& record, const Identity& identity);
  const std::string& name() const { return places_[0].name; }
  const std::vector<Entry>& entries() const { return entries_; }

  // Checks every byte that is not payload, and keeps the payload's hashes. Does nothing the second time.
  void check_structure();
  // Reads a block of an entry and checks it, then copies `runs` of it, which lie within it, to their targets; without runs it
  // is only checked. After check_structure. From any thread; `scratch` is the thread's own.
  void read_block(const Entry& entry, uint64_t block, std::span<const Run> runs, std::vector<char>& scratch);
  void will_need(const Entry& entry, uint64_t block);
  // Closes what has been opened.
  void release();

 private:
  std::shared_ptr<Source> source(size_t place);
  // Calls `use` with one copy after the other until it throws nothing; rethrows what the first one met.
  void try_places(const std::function<void(Source&, const std::string& name)>& use);

  std::vector<Place> places_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Source>> open_;  // of each place
  std::atomic<size_t> best_ = 0;               // places before it have failed
  FileRecord record_;
  std::vector<Entry> entries_;
  std::vector<uint64_t> hashes_;
  bool checked_ = false;
};

// Reads all of a file and checks every byte. Throws as RankFile does.
void check_rank_file(const std::string& path, const FileRecord& record, const Identity& identity);

}  // namespace mm::checkpoint
