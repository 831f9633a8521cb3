// SPDX-License-Identifier: Apache-2.0
// manifest.json of a committed step: what the step is, and for each rank file its size and the hashes of its index and of every
// byte that is not payload; the payload's hashes lie in the file itself, among those bytes. JSON whose last line holds the
// XXH3-128 of all bytes before it. So manifest -> rank file's structure -> blocks of payload: each byte of a step is covered.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace mm::checkpoint {

// What is wrong with the content of a step: a hash, a size, a missing file. Such a step is marked and an older one is used.
struct BadStep : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct FileRecord {
  uint64_t size = 0;
  uint64_t index_offset = 0, index_bytes = 0;  // of /mm/index
  uint64_t hash_offset = 0, hash_count = 0;    // of /mm/hash, 8 bytes each
  uint64_t payload = 0;                        // bytes
  uint64_t stored = 0;                         // bytes that it takes in the file, less where some of it is compressed
  std::string index_hash, structure_hash;      // XXH3-128

  bool operator==(const FileRecord&) const = default;
};

struct Manifest {
  int64_t step = 0;
  std::string writer;    // 16 hexadecimal digits, new for each save; the rank files' indexes repeat it
  std::string program;   // version line of what wrote it
  int64_t saved_at = 0;  // seconds since 1970
  double seconds = 0;    // from the begin of the save to the manifest
  int64_t epoch = 0;     // of the writer (checkpoint/epochs.h); 0: of one without a claim
  Facts facts;
  std::vector<FileRecord> files;  // of rank 0, 1, ...
  std::string tiers{};            // where it was saved, as in SaveResult; empty: not told

  uint64_t payload() const;
  uint64_t stored() const;
};

// A record as one line of JSON, to be sent to rank 0, and back.
std::string text_of(const FileRecord& record);
FileRecord parse_file_record(const std::string& text);

std::string text_of(const Manifest& manifest);
// `where` names it in errors. Throws BadStep, or a usage Error for a format version that this program does not know.
Manifest parse_manifest(const std::string& text, const std::string& where);
// The same without a look at the hash in its last line.
Manifest parse_manifest_body(const std::string& json, const std::string& where);
// Reads STEP_FOLDER/manifest.json; a step other than `step` in it is a BadStep.
Manifest read_manifest(const std::string& step_folder, int64_t step);

std::string rank_file_name(int64_t rank);  // rank-00003.h5

}  // namespace mm::checkpoint
