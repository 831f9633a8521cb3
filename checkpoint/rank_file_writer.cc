// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/rank_file_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "checkpoint/box.h"
#include "checkpoint/compressed_payload.h"
#include "checkpoint/hash.h"
#include "checkpoint/rows.h"
#include "checkpoint/threads.h"

namespace mm::checkpoint {
namespace {

constexpr size_t longest_name = 8192;  // bytes, so that an attribute holds it
constexpr size_t most_dimensions = 32;
constexpr uint64_t least_compressed = 64 << 10;  // bytes of a tensor; below it the chunk's own structure would be much of it

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

struct Part {
  Entry entry;
  Rows rows;
};

// Where to cut the box along an axis, its ends included: at eighths of the whole tensor, or quarters or halves where rows would
// become short; only the ends where that is not worth it.
std::vector<int64_t> cuts_of(const Entry& e, int cut_axis, uint64_t least_part) {
  constexpr uint64_t least_row = 1024;  // bytes
  const auto axis = static_cast<size_t>(cut_axis);
  const int64_t begin = e.box.offset[axis], end = begin + e.box.shape[axis];
  int64_t inner = static_cast<int64_t>(size_of(e.dtype));
  for (size_t d = axis + 1; d < e.box.shape.size(); ++d) inner *= e.box.shape[d];
  const int64_t outer = elements(Extents(e.box.shape.begin(), e.box.shape.begin() + cut_axis)), whole = e.global_shape[axis];
  for (const int64_t parts : {8, 4, 2}) {
    std::vector<int64_t> cuts = {begin};
    for (int64_t k = 1; k < parts; ++k) {
      const int64_t at = whole * k / parts;
      if (at > cuts.back() && at < end) cuts.push_back(at);
    }
    cuts.push_back(end);
    const auto row = static_cast<uint64_t>(whole / parts * inner);
    if (outer > 1 && row >= least_row && row * static_cast<uint64_t>(outer) >= least_part) return cuts;
  }
  return {begin, end};
}

// A view as one entry, or as several along its cut axis.
void add_parts(const ConstView& v, std::vector<Part>& parts) {
  const Entry whole = entry_of(v);
  const char* data = static_cast<const char*>(v.data);
  const bool known = v.cut_axis >= 0;
  const auto axis = static_cast<size_t>(known ? v.cut_axis : 1);
  std::vector<int64_t> cuts;
  // A dataset's structure takes some 1.5 KiB: less than a hundredth where nobody has asked for it.
  constexpr uint64_t least_part = 64 << 10, least_part_unasked = 256 << 10;
  if (axis > 0 && axis < whole.box.shape.size() && whole.bytes() > 0)
    cuts = cuts_of(whole, static_cast<int>(axis), known ? least_part : least_part_unasked);
  if (cuts.size() <= 2) {
    parts.push_back({whole, {data, 1, 1}});
    return;
  }
  uint64_t inner = size_of(v.dtype);
  for (size_t d = axis + 1; d < whole.box.shape.size(); ++d) inner *= static_cast<uint64_t>(whole.box.shape[d]);
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    Part part{whole, {data + static_cast<uint64_t>(cuts[i] - cuts[0]) * inner, static_cast<uint64_t>(cuts[i + 1] - cuts[i]) * inner,
                      static_cast<uint64_t>(whole.box.shape[axis]) * inner}};
    part.entry.box.offset[axis] = cuts[i];
    part.entry.box.shape[axis] = cuts[i + 1] - cuts[i];
    part.entry.fine = true;
    parts.push_back(std::move(part));
  }
}

// A block of an entry's payload: where it lies in memory and in the file, and the place of its hash.
struct Block {
  const Rows* rows = nullptr;
  uint64_t begin = 0, bytes = 0, offset = 0;
  size_t hash = 0;
};

std::vector<Block> blocks_of(const std::vector<Entry>& entries, const std::vector<Part>& parts) {
  std::vector<Block> blocks;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Entry& e = entries[i];
    const Blocks all = e.blocks();
    for (uint64_t k = 0; k < all.count(); ++k) {
      const Range span = all.span(k);
      blocks.push_back({&parts[i].rows, span.begin, span.end - span.begin, e.offset + span.begin, static_cast<size_t>(e.first_block + k)});
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
  // The kernel copies a slice without letting anybody else on the core; a training step that waits for the core waits no longer than that.
  const uint64_t slice = options.background ? uint64_t{128} << 10 : block_bytes;
  const auto write_blocks = [&] {
    uint64_t unstarted = 0;
    std::vector<char> scratch;
    for (size_t i = next++; i < blocks.size() && !failed; i = next++) {
      const Block& b = blocks[i];
      if (options.pace != nullptr) options.pace->take(b.bytes);
      const char* data = b.rows->get(b.begin, b.bytes, scratch);
      hashes[b.hash] = hash64(data, b.bytes);
      try {
        for (uint64_t at = 0; at < b.bytes; at += slice) file.write(data + at, std::min(slice, b.bytes - at), b.offset + at);
      } catch (...) {
        failed = true;
        throw;
      }
      unstarted += b.bytes;
      if (unstarted < writeback_bytes) continue;
      file.start_writeback(b.offset + b.bytes - unstarted, unstarted);
      unstarted = 0;
    }
  };
  uint64_t bytes = 0;
  for (const Block& b : blocks) bytes += b.bytes;
  constexpr uint64_t soon_written = 32 << 20;  // in some 10 ms, which no step notices
  if (!options.background || bytes <= soon_written) {
    on_threads(options.threads, write_blocks);
    return hashes;
  }
  // Where training leaves no core idle, the calling thread, whose priority is low but no more than that, works as well after a while.
  constexpr double patient_bytes_per_second = 200e6;  // an idle core does several times that
  Team team;
  team.start(options.threads, [&] {
    run_when_idle();
    write_blocks();
  });
  const double patience = static_cast<double>(bytes) / patient_bytes_per_second;
  if (!team.wait_for(std::chrono::duration<double>(patience))) team.join_in(write_blocks);
  team.finish();
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
  std::vector<Part> parts;
  bool any_compressed = false;
  for (const ConstView& v : views) add_parts(v, parts);
  for (Part& part : parts) {
    Entry& e = part.entry;
    e.compressed = options.compress && e.bytes() >= least_compressed && !e.box.shape.empty();
    any_compressed = any_compressed || e.compressed;
    e.first_block = record.hash_count;
    record.hash_count += e.blocks().count();
    record.payload += e.bytes();
    index.entries.push_back(std::move(e));
  }
  std::vector<uint64_t> hashes;
  SkeletonCache own;
  Skeleton behind;
  Skeleton* structure = &behind;
  if (any_compressed) {
    std::vector<Rows> rows;
    for (const Part& part : parts) rows.push_back(part.rows);
    CompressedPayload payload = write_compressed(file, index.entries, rows, options.threads, options.pace);
    hashes = std::move(payload.hashes);
    record.index_bytes = encode(index).size();
    behind = make_skeleton_behind(index.entries, record.index_bytes, record.hash_count, payload.end);
    record.stored = payload.end - payload_begin;
    file.allocate(behind.size);
  } else {
    record.index_bytes = encode(index).size();
    SkeletonCache& cache = options.skeletons != nullptr ? *options.skeletons : own;
    structure = &cache.get(index.entries, record.index_bytes, record.hash_count);
    record.stored = record.payload;
    file.allocate(structure->size);
    hashes = write_payload(file, blocks_of(index.entries, parts), options);
  }
  Skeleton& skeleton = *structure;
  record.size = skeleton.size;
  record.index_offset = skeleton.index_offset;
  record.hash_offset = skeleton.hash_offset;

  const std::string blob = encode(index);
  record.index_hash = hash128(blob);
  skeleton.patch(record.index_offset, blob);
  skeleton.patch(record.hash_offset,
                 std::string(reinterpret_cast<const char*>(hashes.data()), hashes.size() * sizeof(uint64_t)));
  Hash128 hash;
  for (const Skeleton::Piece& p : skeleton.structure) {
    hash.add(p.bytes.data(), p.bytes.size());
    if (!all_zero(p.bytes)) file.write(p.bytes.data(), p.bytes.size(), p.offset);  // a new file is zeros
  }
  record.structure_hash = hash.hex();
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
