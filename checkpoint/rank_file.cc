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

void RankFile::check_block(const Entry& e, uint64_t block, const char* data, uint64_t bytes) const {
  if (hash64(data, bytes) == hashes_[e.first_block + block]) return;
  throw BadStep(fmt::format("checkpoint: {}: tensor {} ({}): the hash of block {}, bytes {} to {} of the file, does not hold",
                            path_, e.name, e.role, block, e.offset + block * block_bytes,
                            e.offset + block * block_bytes + bytes));
}

void RankFile::read(const io::File& file, const Entry& e, const std::vector<Run>& runs) const {
  std::vector<char> buffer;
  uint64_t held = UINT64_MAX;  // the block in the buffer
  for (const Run& run : runs) {
    for (uint64_t done = 0; done < run.count;) {
      const uint64_t at = run.source + done;
      const uint64_t block = at / block_bytes, begin = block * block_bytes;
      const uint64_t length = std::min(block_bytes, e.bytes() - begin);
      const uint64_t n = std::min(run.count - done, begin + length - at);
      char* target = run.target + done;
      if (n == length && block != held) {
        as_content([&] { file.read(target, n, e.offset + begin); });
        check_block(e, block, target, n);
      } else {
        if (block != held) {
          held = UINT64_MAX;
          buffer.resize(length);
          as_content([&] { file.read(buffer.data(), length, e.offset + begin); });
          check_block(e, block, buffer.data(), length);
          held = block;
        }
        std::memcpy(target, buffer.data() + (at - begin), n);
      }
      done += n;
    }
  }
}

void RankFile::check_payload(const io::File& file, const Entry& e, const std::function<void(uint64_t)>& progress) const {
  std::vector<char> buffer;
  for (uint64_t block = 0; block < e.blocks(); ++block) {
    buffer.resize(std::min(block_bytes, e.bytes() - block * block_bytes));
    as_content([&] { file.read(buffer.data(), buffer.size(), e.offset + block * block_bytes); });
    check_block(e, block, buffer.data(), buffer.size());
    progress(buffer.size());
  }
}

}  // namespace mm::checkpoint
