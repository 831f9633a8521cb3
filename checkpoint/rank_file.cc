// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/rank_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "checkpoint/box.h"
#include "checkpoint/hash.h"
#include "checkpoint/skeleton.h"

namespace mm::checkpoint {
namespace {

constexpr size_t longest_name = 8192;  // bytes, so that an attribute holds it
constexpr size_t most_dimensions = 32;

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

Entry entry_of(const ConstView& v) {
  const std::string who = fmt::format("checkpoint: save tensor {} ({})", v.name, v.role);
  auto refuse = [&](const std::string& reason) { throw Error(exit_status::internal, who + ": " + reason); };
  if (v.name.size() > longest_name || v.role.size() > longest_name)
    refuse(fmt::format("a name longer than {} bytes", longest_name));
  if (v.global_shape.size() > most_dimensions) refuse(fmt::format("more than {} dimensions", most_dimensions));
  if (!checked_elements(v.global_shape) || !lies_within(v.box, v.global_shape)) {
    refuse(fmt::format("box {} at {} of a tensor of shape {}", text_of(v.box.shape), text_of(v.box.offset),
                       text_of(v.global_shape)));
  }
  Entry e{v.name, v.role, v.dtype, v.global_shape, v.box};
  if (v.data == nullptr && e.bytes() > 0) refuse("no data");
  return e;
}

}  // namespace

FileRecord write_rank_file(const std::string& path, const Identity& identity, const std::vector<ConstView>& views) {
  RankIndex index{identity, {}};
  FileRecord record;
  for (const ConstView& v : views) {
    Entry e = entry_of(v);
    e.first_block = record.hash_count;
    record.hash_count += e.blocks();
    record.payload += e.bytes();
    index.entries.push_back(std::move(e));
  }
  record.index_bytes = encode(index).size();
  Skeleton skeleton = make_skeleton(index.entries, record.index_bytes, record.hash_count);
  record.size = skeleton.size;
  record.index_offset = skeleton.index_offset;
  record.hash_offset = skeleton.hash_offset;

  io::File file = io::File::create(path);
  file.allocate(record.size);

  std::vector<uint64_t> hashes;
  for (size_t i = 0; i < views.size(); ++i) {
    const Entry& e = index.entries[i];
    const char* data = static_cast<const char*>(views[i].data);
    for (uint64_t at = 0; at < e.bytes(); at += block_bytes) {
      const uint64_t n = std::min(block_bytes, e.bytes() - at);
      hashes.push_back(hash64(data + at, n));
      file.write(data + at, n, e.offset + at);
    }
  }

  const std::string blob = encode(index);
  record.index_hash = hash128(blob);
  skeleton.patch(record.index_offset, blob);
  skeleton.patch(record.hash_offset,
                 std::string(reinterpret_cast<const char*>(hashes.data()), hashes.size() * sizeof(uint64_t)));
  Hash128 structure;
  for (const Skeleton::Piece& p : skeleton.structure) {
    structure.add(p.bytes.data(), p.bytes.size());
    file.write(p.bytes.data(), p.bytes.size(), p.offset);
  }
  record.structure_hash = structure.hex();
  file.sync();
  file.close();
  return record;
}

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
