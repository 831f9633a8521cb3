// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/rank_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "checkpoint/hash.h"

namespace mm::checkpoint {
namespace {

// A missing or short file is wrong content; anything else that a read reports may pass, and says nothing about the step.
template <class F>
auto as_content(F&& f) {
  try {
    return f();
  } catch (const io::Failure& e) {
    if (e.is_of_content()) throw BadStep(e.what());
    throw;
  }
}

}  // namespace

RankFile::RankFile(std::string path, const FileRecord& record, const Identity& identity)
    : path_(std::move(path)), record_(record) {
  const std::string where = "checkpoint: " + path_;
  const uint64_t size = record_.size;
  if (record_.index_bytes > size || record_.index_offset > size - record_.index_bytes)
    throw BadStep(where + ": the index lies beyond the file");
  if (record_.hash_count > size / 8 || record_.hash_offset > size - 8 * record_.hash_count) {
    throw BadStep(where + ": the hashes lie beyond the file");
  }
  const io::File file = open();
  std::string blob(record_.index_bytes, '\0');
  as_content([&] { file.read(blob.data(), blob.size(), record_.index_offset); });
  if (hash128(blob) != record_.index_hash) throw BadStep(where + ": the hash of its index does not hold");
  RankIndex index = decode_index(blob, size, record_.hash_count, where);
  if (index.identity != identity) {
    throw BadStep(fmt::format("{}: it is rank {} of {} of step {} by writer {}, not rank {} of {} of step {} by writer {}",
                              where, index.identity.rank, index.identity.ranks, index.identity.step, index.identity.writer,
                              identity.rank, identity.ranks, identity.step, identity.writer));
  }
  entries_ = std::move(index.entries);
}

io::File RankFile::open() const {
  return as_content([&] {
    io::File file = io::File::open(path_);
    if (file.size() != record_.size) {
      throw BadStep(fmt::format("checkpoint: {}: {} bytes long, not {}", path_, file.size(), record_.size));
    }
    return file;
  });
}

void RankFile::check_structure(const io::File& file) {
  if (checked_) return;
  Hash128 hash;
  std::vector<char> buffer;
  for (const Range& r : structure_ranges(entries_, record_.size)) {
    for (uint64_t at = r.begin; at < r.end; at += buffer.size()) {
      buffer.resize(std::min(block_bytes, r.end - at));
      as_content([&] { file.read(buffer.data(), buffer.size(), at); });
      hash.add(buffer.data(), buffer.size());
    }
  }
  if (hash.hex() != record_.structure_hash) throw BadStep("checkpoint: " + path_ + ": the hash of its structure does not hold");
  std::vector<uint64_t> hashes(record_.hash_count);
  as_content([&] { file.read(hashes.data(), hashes.size() * sizeof(uint64_t), record_.hash_offset); });
  hashes_ = std::move(hashes);
  checked_ = true;
}

void RankFile::read_block(const io::File& file, const Entry& e, uint64_t block, std::span<const Run> runs,
                          std::vector<char>& scratch) const {
  // Pieces that are hashed while they are still in the processor's cache.
  constexpr uint64_t piece_bytes = 128 << 10;
  const uint64_t begin = block * block_bytes, length = std::min(block_bytes, e.bytes() - begin);
  const bool direct = runs.size() == 1 && runs[0].count == length;
  if (!direct) scratch.resize(std::max<size_t>(scratch.size(), runs.empty() ? piece_bytes : length));
  Hash64 hash;
  for (uint64_t at = 0; at < length; at += piece_bytes) {
    const uint64_t n = std::min(piece_bytes, length - at);
    char* to = direct ? runs[0].target + at : runs.empty() ? scratch.data() : scratch.data() + at;
    as_content([&] { file.read(to, n, e.offset + begin + at); });
    hash.add(to, n);
  }
  if (hash.value() != hashes_[e.first_block + block]) {
    throw BadStep(fmt::format("checkpoint: {}: tensor {} ({}): the hash of block {}, bytes {} to {} of the file, does not hold",
                              path_, e.name, e.role, block, e.offset + begin, e.offset + begin + length));
  }
  if (direct) return;
  for (const Run& r : runs) std::memcpy(r.target, scratch.data() + (r.source - begin), r.count);
}

}  // namespace mm::checkpoint
