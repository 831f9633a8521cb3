// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/rank_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "checkpoint/frame.h"
#include "checkpoint/hash.h"

namespace mm::checkpoint {
namespace {

// A missing or short file is wrong content; anything else that a read reports may pass, and says nothing about the step.
template <class F>
void as_content(F&& f) {
  try {
    f();
  } catch (const io::Failure& e) {
    if (e.is_of_content()) throw BadStep(e.what());
    throw;
  }
}

}  // namespace

RankFile::RankFile(std::vector<Place> places, const FileRecord& record, const Identity& identity)
    : places_(std::move(places)), open_(places_.size()), record_(record) {
  const uint64_t size = record_.size;
  const std::string where = "checkpoint: " + name();
  if (record_.index_bytes > size || record_.index_offset > size - record_.index_bytes)
    throw BadStep(where + ": the index lies beyond the file");
  if (record_.hash_count > size / 8 || record_.hash_offset > size - 8 * record_.hash_count)
    throw BadStep(where + ": the hashes lie beyond the file");
  std::string blob(record_.index_bytes, '\0');
  try_places([&](Source& source, const std::string& place) {
    source.read(blob.data(), blob.size(), record_.index_offset);
    if (hash128(blob) != record_.index_hash) throw BadStep("checkpoint: " + place + ": the hash of its index does not hold");
  });
  release();
  RankIndex index = decode_index(blob, size, record_.hash_count, where);
  if (index.identity != identity) {
    throw BadStep(fmt::format("{}: it is rank {} of {} of step {} by writer {}, not rank {} of {} of step {} by writer {}",
                              where, index.identity.rank, index.identity.ranks, index.identity.step, index.identity.writer,
                              identity.rank, identity.ranks, identity.step, identity.writer));
  }
  entries_ = std::move(index.entries);
}

std::shared_ptr<Source> RankFile::source(size_t place) {
  const std::lock_guard lock(mutex_);
  if (!open_[place]) {
    std::shared_ptr<Source> opened = places_[place].open();
    if (opened->size() != record_.size) {
      throw BadStep(fmt::format("checkpoint: {}: {} bytes long, not {}", places_[place].name, opened->size(), record_.size));
    }
    open_[place] = std::move(opened);
  }
  return open_[place];
}

void RankFile::try_places(const std::function<void(Source&, const std::string&)>& use) {
  std::exception_ptr first;
  for (size_t place = best_; place < places_.size(); ++place) {
    try {
      return as_content([&] { use(*source(place), places_[place].name); });
    } catch (const std::exception&) {
      if (!first) first = std::current_exception();
      // The last copy stays, to be asked again.
      size_t failed = place;
      if (place + 1 < places_.size()) best_.compare_exchange_strong(failed, place + 1);
    }
  }
  std::rethrow_exception(first);
}

void RankFile::release() {
  const std::lock_guard lock(mutex_);
  for (auto& source : open_) source.reset();
}

void RankFile::check_structure() {
  if (checked_) return;
  std::vector<char> buffer;
  std::vector<uint64_t> hashes(record_.hash_count);
  try_places([&](Source& source, const std::string& place) {
    Hash128 hash;
    for (const Range& r : structure_ranges(entries_, record_.size)) {
      for (uint64_t at = r.begin; at < r.end; at += buffer.size()) {
        buffer.resize(std::min(block_bytes, r.end - at));
        source.read(buffer.data(), buffer.size(), at);
        hash.add(buffer.data(), buffer.size());
        // The hashes lie within one range; they are taken from the bytes that were hashed.
        const uint64_t begin = std::max(at, record_.hash_offset);
        const uint64_t end = std::min(at + buffer.size(), record_.hash_offset + 8 * record_.hash_count);
        if (begin < end) {
          std::memcpy(reinterpret_cast<char*>(hashes.data()) + (begin - record_.hash_offset), buffer.data() + (begin - at),
                      end - begin);
        }
      }
    }
    if (hash.hex() != record_.structure_hash)
      throw BadStep("checkpoint: " + place + ": the hash of its structure does not hold");
  });
  hashes_ = std::move(hashes);
  checked_ = true;
}

void RankFile::will_need(const Entry& e, uint64_t block) {
  try {
    const Range stored = e.stored(block);
    source(best_)->will_need(stored.begin, stored.end - stored.begin);
  } catch (const std::exception&) {
    // The read itself meets it again.
  }
}

void RankFile::read_block(const Entry& e, uint64_t block, std::span<const Run> runs, std::vector<char>& scratch) {
  // Pieces that are hashed while they are still in the processor's cache.
  constexpr uint64_t piece_bytes = 128 << 10;
  const Blocks blocks = e.blocks();
  const Range stored = e.stored(block), span = blocks.span(block);
  const uint64_t length = stored.end - stored.begin, opened = e.compressed ? blocks.piece : length;
  const bool direct = runs.size() == 1 && runs[0].count == opened;  // the block as it is goes to one place
  const bool kept = !runs.empty() && (e.compressed || !direct);     // what is read stays in scratch
  const uint64_t wanted = (kept ? length : runs.empty() ? piece_bytes : 0) + (e.compressed && kept && !direct ? opened : 0);
  scratch.resize(std::max<size_t>(scratch.size(), wanted));
  char* const plain = direct ? runs[0].target : e.compressed && kept ? scratch.data() + length : scratch.data();
  try_places([&](Source& source, const std::string& place) {
    Hash64 hash;
    for (uint64_t at = 0; at < length; at += piece_bytes) {
      const uint64_t n = std::min(piece_bytes, length - at);
      char* to = kept ? scratch.data() + at : runs.empty() ? scratch.data() : plain + at;
      source.read(to, n, stored.begin + at);
      hash.add(to, n);
    }
    const auto fail = [&](const std::string& what) {
      throw BadStep(fmt::format("checkpoint: {}: tensor {} ({}): block {}, bytes {} to {} of the file: {}", place, e.name, e.role,
                                block, stored.begin, stored.end, what));
    };
    if (hash.value() != hashes_[e.first_block + block]) fail("its hash does not hold");
    if (!e.compressed || runs.empty()) return;
    if (const std::string error = open_frame(scratch.data(), length, plain, opened); !error.empty()) fail(error);
  });
  if (direct) return;
  for (const Run& r : runs) std::memcpy(r.target, plain + (r.source - span.begin), r.count);
}

void check_rank_file(const std::string& path, const FileRecord& record, const Identity& identity) {
  RankFile file({place_of_file(path)}, record, identity);
  file.check_structure();
  std::vector<char> scratch;
  for (const Entry& e : file.entries()) {
    for (uint64_t block = 0; block < e.blocks().count(); ++block) file.read_block(e, block, {}, scratch);
  }
}

}  // namespace mm::checkpoint
