// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/rank_file_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "checkpoint/box.h"
#include "checkpoint/hash.h"
#include "checkpoint/threads.h"

namespace mm::checkpoint {
namespace {

constexpr size_t longest_name = 8192;  // bytes, so that an attribute holds it
constexpr size_t most_dimensions = 32;

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

// A block of a view's payload: where it lies in memory and in the file, and the place of its hash.
struct Block {
  const char* data = nullptr;
  uint64_t bytes = 0, offset = 0;
  size_t hash = 0;
};

std::vector<Block> blocks_of(const std::vector<Entry>& entries, const std::vector<ConstView>& views) {
  std::vector<Block> blocks;
  for (size_t i = 0; i < views.size(); ++i) {
    const Entry& e = entries[i];
    for (uint64_t at = 0; at < e.bytes(); at += block_bytes) {
      blocks.push_back({static_cast<const char*>(views[i].data) + at, std::min(block_bytes, e.bytes() - at), e.offset + at,
                        static_cast<size_t>(e.first_block + at / block_bytes)});
    }
  }
  return blocks;
}

// Hashes and writes all blocks, in the order of the file.
std::vector<uint64_t> write_payload(io::File& file, const std::vector<Block>& blocks, const WriteOptions& options) {
  constexpr uint64_t writeback_bytes = uint64_t{16} << 20;
  std::vector<uint64_t> hashes(blocks.size());
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
  on_threads(options.threads, [&] {
    if (options.background) yield_to_others();
    uint64_t unstarted = 0;
    for (size_t i = next++; i < blocks.size() && !failed; i = next++) {
      const Block& b = blocks[i];
      if (options.pace != nullptr) options.pace->take(b.bytes);
      hashes[b.hash] = hash64(b.data, b.bytes);
      try {
        file.write(b.data, b.bytes, b.offset);
      } catch (...) {
        failed = true;
        throw;
      }
      unstarted += b.bytes;
      if (unstarted < writeback_bytes) continue;
      file.start_writeback(b.offset + b.bytes - unstarted, unstarted);
      unstarted = 0;
    }
  });
  return hashes;
}

bool all_zero(const std::string& bytes) {
  return bytes.find_first_not_of('\0') == std::string::npos;
}

}  // namespace

Skeleton& SkeletonCache::get(std::vector<Entry>& entries, uint64_t index_bytes, uint64_t hash_count) {
  // Offsets are still zero in it, and the identity is not part of it.
  const std::string key = hash128(encode({{}, entries}));
  if (key != key_) {
    key_.clear();
    skeleton_ = make_skeleton(entries, index_bytes, hash_count);
    offsets_.clear();
    for (const Entry& e : entries) offsets_.push_back(e.offset);
    key_ = key;
  }
  for (size_t i = 0; i < entries.size(); ++i) entries[i].offset = offsets_[i];
  return skeleton_;
}

FileRecord fill_rank_file(io::File& file, const Identity& identity, const std::vector<ConstView>& views,
                          const WriteOptions& options) {
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
  SkeletonCache own;
  SkeletonCache& cache = options.skeletons != nullptr ? *options.skeletons : own;
  Skeleton& skeleton = cache.get(index.entries, record.index_bytes, record.hash_count);
  record.size = skeleton.size;
  record.index_offset = skeleton.index_offset;
  record.hash_offset = skeleton.hash_offset;

  file.allocate(record.size);
  const std::vector<uint64_t> hashes = write_payload(file, blocks_of(index.entries, views), options);

  const std::string blob = encode(index);
  record.index_hash = hash128(blob);
  skeleton.patch(record.index_offset, blob);
  skeleton.patch(record.hash_offset,
                 std::string(reinterpret_cast<const char*>(hashes.data()), hashes.size() * sizeof(uint64_t)));
  Hash128 structure;
  for (const Skeleton::Piece& p : skeleton.structure) {
    structure.add(p.bytes.data(), p.bytes.size());
    if (!all_zero(p.bytes)) file.write(p.bytes.data(), p.bytes.size(), p.offset);  // a new file is zeros
  }
  record.structure_hash = structure.hex();
  return record;
}

FileRecord write_rank_file(const std::string& path, const Identity& identity, const std::vector<ConstView>& views,
                           const WriteOptions& options) {
  io::File file = io::File::create(path);
  const FileRecord record = fill_rank_file(file, identity, views, options);
  file.sync();
  file.close();
  return record;
}

}  // namespace mm::checkpoint
