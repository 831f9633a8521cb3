// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/compressed_payload.h"

#include <condition_variable>
#include <mutex>

#include "checkpoint/frame.h"
#include "checkpoint/hash.h"
#include "checkpoint/skeleton.h"
#include "checkpoint/threads.h"

namespace mm::checkpoint {
namespace {

struct Block {
  size_t entry = 0;
  uint64_t number = 0;
};

std::vector<Block> blocks_of(const std::vector<Entry>& entries) {
  std::vector<Block> out;
  for (size_t i = 0; i < entries.size(); ++i) {
    const uint64_t n = entries[i].blocks().count();
    for (uint64_t number = 0; number < n; ++number) out.push_back({i, number});
  }
  return out;
}

// Hands out blocks in order, and places in the file in the order of the blocks.
class Queue {
 public:
  explicit Queue(size_t blocks) : blocks_(blocks) {}
  // False: none is left, or somebody has failed.
  bool take(size_t& block) {
    const std::lock_guard lock(mutex_);
    if (failed_ || taken_ == blocks_) return false;
    block = taken_++;
    return true;
  }
  // Waits until all blocks before have their place. False: somebody has failed.
  bool place(size_t block, uint64_t bytes, uint64_t& offset) {
    std::unique_lock lock(mutex_);
    placed_or_failed_.wait(lock, [&] { return failed_ || placed_ == block; });
    if (failed_) return false;
    offset = end_;
    end_ += bytes;
    ++placed_;
    placed_or_failed_.notify_all();
    return true;
  }
  void fail() {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    placed_or_failed_.notify_all();
  }
  uint64_t end() const { return end_; }

 private:
  const size_t blocks_;
  std::mutex mutex_;
  std::condition_variable placed_or_failed_;
  size_t taken_ = 0, placed_ = 0;
  uint64_t end_ = payload_begin;
  bool failed_ = false;
};

// A thread's own memory.
struct Scratch {
  std::vector<char> rows, chunk, frame;
};

// What is to be written of a block: its bytes, or their frame.
std::pair<const char*, uint64_t> stored_form(const Entry& e, const Rows& rows, uint64_t number, Scratch& scratch) {
  const Blocks blocks = e.blocks();
  const Range span = blocks.span(number);
  const uint64_t bytes = span.end - span.begin;
  const char* data = rows.get(span.begin, bytes, scratch.rows);
  if (!e.compressed) return {data, bytes};
  if (bytes < blocks.piece) {
    scratch.chunk.assign(data, data + bytes);
    scratch.chunk.resize(blocks.piece, '\0');
    data = scratch.chunk.data();
  }
  make_frame(data, blocks.piece, size_of(e.dtype), scratch.frame);
  return {scratch.frame.data(), scratch.frame.size()};
}

}  // namespace

CompressedPayload write_compressed(io::File& file, std::vector<Entry>& entries, const std::vector<Rows>& rows, int threads,
                                   Pace* pace) {
  constexpr uint64_t writeback_bytes = uint64_t{16} << 20;
  const std::vector<Block> blocks = blocks_of(entries);
  for (Entry& e : entries) {
    if (e.compressed) e.frames.resize(e.blocks().count());
  }
  CompressedPayload out;
  out.hashes.resize(blocks.size());
  Queue queue(blocks.size());
  const auto write_block = [&](size_t i, Scratch& scratch) {
    const auto [entry, number] = blocks[i];
    Entry& e = entries[entry];
    const auto [data, bytes] = stored_form(e, rows[entry], number, scratch);
    out.hashes[i] = hash64(data, bytes);
    uint64_t offset = 0;
    if (!queue.place(i, bytes, offset)) return;
    if (e.compressed)
      e.frames[number] = {offset, static_cast<uint32_t>(bytes)};
    else if (number == 0)
      e.offset = offset;
    if (pace != nullptr) pace->take(bytes);
    file.write(data, bytes, offset);
    const uint64_t end = (offset + bytes) / writeback_bytes * writeback_bytes;
    if (end > offset && end >= writeback_bytes) file.start_writeback(end - writeback_bytes, writeback_bytes);
  };
  on_threads(threads, [&] {
    Scratch scratch;
    try {
      for (size_t i = 0; queue.take(i);) write_block(i, scratch);
    } catch (...) {
      queue.fail();
      throw;
    }
  });
  out.end = queue.end();
  return out;
}

}  // namespace mm::checkpoint
