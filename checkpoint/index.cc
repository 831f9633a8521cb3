// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/index.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>

#include "checkpoint/box.h"
#include "checkpoint/dtype.h"
#include "checkpoint/hash.h"
#include "checkpoint/manifest.h"

namespace mm::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and written as it lies in memory");

constexpr std::string_view magic = "mmindex2", magic_without_forms = "mmindex1";
constexpr uint8_t form_compressed = 1, form_fine = 2;
constexpr uint64_t fine_block_bytes = 256 << 10;
constexpr uint64_t most_frame_overhead = 16;
constexpr size_t writer_length = 16;

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& out, const std::string& text) {
  put(out, static_cast<uint32_t>(text.size()));
  out += text;
}

// Reads from a blob; what goes beyond its end is a BadStep.
class Reader {
 public:
  Reader(const std::string& blob, const std::string& where) : rest_(blob), where_(where) {}
  template <class T>
  T get() {
    T value;
    std::memcpy(&value, bytes(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view bytes(size_t n) {
    if (n > rest_.size()) fail("the index ends early");
    const std::string_view out = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return out;
  }
  std::string text() { return std::string(bytes(get<uint32_t>())); }
  Extents extents(size_t n) {
    Extents out(n);
    for (int64_t& e : out) e = get<int64_t>();
    return out;
  }
  bool at_end() const { return rest_.empty(); }
  [[noreturn]] void fail(const std::string& reason) const { throw BadStep(where_ + ": " + reason); }

 private:
  std::string_view rest_;
  const std::string& where_;
};

void read_form(Reader& in, Entry& e, uint64_t file_size, uint64_t hash_count) {
  const auto form = in.get<uint8_t>();
  if (form > (form_compressed | form_fine)) in.fail(fmt::format("tensor {}: form {} is unknown", e.name, form));
  e.fine = (form & form_fine) != 0;
  if ((form & form_compressed) == 0) return;
  if (e.bytes() == 0 || e.box.shape.empty()) in.fail(fmt::format("tensor {}: nothing, compressed", e.name));
  e.compressed = true;
  const uint64_t blocks = e.blocks().count(), most = e.blocks().piece + most_frame_overhead;
  if (blocks > hash_count) in.fail(fmt::format("tensor {}: its hashes are not there", e.name));
  for (uint64_t i = 0; i < blocks; ++i) {
    const auto offset = in.get<uint64_t>();
    const auto bytes = in.get<uint32_t>();
    if (bytes == 0 || bytes > most) in.fail(fmt::format("tensor {}: block {} takes {} bytes", e.name, i, bytes));
    if (bytes > file_size || offset > file_size - bytes)
      in.fail(fmt::format("tensor {}: block {} goes beyond the file", e.name, i));
    e.frames.push_back({offset, bytes});
  }
}

Entry read_entry(Reader& in, bool has_form, uint64_t file_size, uint64_t hash_count) {
  Entry e;
  e.name = in.text();
  e.role = in.text();
  const auto number = in.get<uint8_t>();
  const auto dtype = dtype_of_number(number);
  if (!dtype) in.fail(fmt::format("tensor {}: dtype {} is unknown", e.name, number));
  e.dtype = *dtype;
  const size_t dimensions = in.get<uint8_t>();
  e.global_shape = in.extents(dimensions);
  e.box.offset = in.extents(dimensions);
  e.box.shape = in.extents(dimensions);
  e.offset = in.get<uint64_t>();
  e.first_block = in.get<uint64_t>();
  if (!checked_elements(e.global_shape) || !lies_within(e.box, e.global_shape)) {
    in.fail(fmt::format("tensor {}: box {} at {} of a tensor of shape {}", e.name, text_of(e.box.shape), text_of(e.box.offset),
                        text_of(e.global_shape)));
  }
  if (has_form) read_form(in, e, file_size, hash_count);
  const uint64_t bytes = e.compressed ? 0 : e.bytes();
  if (bytes > file_size || e.offset > file_size - bytes)
    in.fail(fmt::format("tensor {}: its payload goes beyond the file", e.name));
  const uint64_t blocks = e.blocks().count();
  if (blocks > hash_count || e.first_block > hash_count - blocks)
    in.fail(fmt::format("tensor {}: its hashes are not there", e.name));
  return e;
}

std::vector<Range> payload_ranges(const std::vector<Entry>& entries) {
  std::vector<Range> ranges;
  for (const Entry& e : entries) {
    if (!e.compressed && e.bytes() > 0) ranges.push_back({e.offset, e.offset + e.bytes()});
    for (const Entry::Frame& f : e.frames) ranges.push_back({f.offset, f.offset + f.bytes});
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  return ranges;
}

// The axis that the chunks of a compressed entry cut, and how many of its indices one holds.
struct Cut {
  size_t axis = 0;
  uint64_t rows = 1, row_bytes = 1;
};

uint64_t most_in_a_block(const Entry& e) {
  return e.fine ? fine_block_bytes : block_bytes;
}

Cut cut_of(const Entry& e) {
  const uint64_t block = most_in_a_block(e);
  Cut cut{e.box.shape.size(), 1, size_of(e.dtype)};
  while (cut.axis > 0) {
    --cut.axis;
    const auto extent = static_cast<uint64_t>(e.box.shape[cut.axis]);
    if (cut.axis > 0 && cut.row_bytes * extent <= block) {
      cut.row_bytes *= extent;
      continue;
    }
    // Pieces of about one size, so that little is filled up.
    const uint64_t most = block / cut.row_bytes, pieces = (extent + most - 1) / most;
    cut.rows = (extent + pieces - 1) / pieces;
    break;
  }
  return cut;
}

}  // namespace

Range Blocks::span(uint64_t block) const {
  const uint64_t begin = block / per_slab() * slab, within = block % per_slab() * piece;
  return {begin + within, begin + std::min(slab, within + piece)};
}

Blocks Entry::blocks() const {
  const uint64_t all = bytes();
  if (all == 0) return {};
  if (!compressed) return {1, all, most_in_a_block(*this)};
  const Cut cut = cut_of(*this);
  const uint64_t slab = cut.row_bytes * static_cast<uint64_t>(box.shape.at(cut.axis));
  return {all / slab, slab, cut.rows * cut.row_bytes};
}

Extents Entry::chunk() const {
  const Cut cut = cut_of(*this);
  Extents out = box.shape;
  for (size_t d = 0; d < cut.axis; ++d) out[d] = 1;
  out.at(cut.axis) = static_cast<int64_t>(cut.rows);
  return out;
}

Range Entry::stored(uint64_t block) const {
  if (compressed) return {frames.at(block).offset, frames[block].offset + frames[block].bytes};
  const Range span = blocks().span(block);
  return {offset + span.begin, offset + span.end};
}

std::string encode(const RankIndex& index) {
  std::string out(magic);
  std::string writer = index.identity.writer;
  writer.resize(writer_length, '0');
  out += writer;
  put(out, index.identity.step);
  put(out, static_cast<uint32_t>(index.identity.rank));
  put(out, static_cast<uint32_t>(index.identity.ranks));
  put(out, static_cast<uint64_t>(index.entries.size()));
  for (const Entry& e : index.entries) {
    put_text(out, e.name);
    put_text(out, e.role);
    put(out, number_of(e.dtype));
    put(out, static_cast<uint8_t>(e.global_shape.size()));
    for (const Extents* extents : {&e.global_shape, &e.box.offset, &e.box.shape}) {
      for (const int64_t n : *extents) put(out, n);
    }
    put(out, e.offset);
    put(out, e.first_block);
    put(out, static_cast<uint8_t>((e.compressed ? form_compressed : 0) | (e.fine ? form_fine : 0)));
    for (const Entry::Frame& f : e.frames) {
      put(out, f.offset);
      put(out, f.bytes);
    }
  }
  return out;
}

RankIndex decode_index(const std::string& blob, uint64_t file_size, uint64_t hash_count, const std::string& where) {
  Reader in(blob, where);
  const std::string_view begin = in.bytes(std::min(magic.size(), blob.size()));
  const bool has_forms = begin == magic;
  if (!has_forms && begin != magic_without_forms) in.fail("no index where the manifest says");
  RankIndex index;
  index.identity.writer = in.bytes(writer_length);
  index.identity.step = in.get<int64_t>();
  index.identity.rank = static_cast<int>(in.get<uint32_t>());
  index.identity.ranks = static_cast<int>(in.get<uint32_t>());
  const auto count = in.get<uint64_t>();
  for (uint64_t i = 0; i < count; ++i) index.entries.push_back(read_entry(in, has_forms, file_size, hash_count));
  if (!in.at_end()) in.fail("the index has more than its entries");
  const std::vector<Range> payload = payload_ranges(index.entries);
  for (size_t i = 1; i < payload.size(); ++i) {
    if (payload[i].begin < payload[i - 1].end) in.fail(fmt::format("two payloads overlap at byte {}", payload[i].begin));
  }
  return index;
}

std::vector<Range> structure_ranges(const std::vector<Entry>& entries, uint64_t file_size) {
  std::vector<Range> out;
  uint64_t at = 0;
  for (const Range& r : payload_ranges(entries)) {
    if (r.begin > at) out.push_back({at, r.begin});
    at = r.end;
  }
  if (file_size > at) out.push_back({at, file_size});
  return out;
}

std::string path_component(const std::string& name) {
  if (name.empty()) return "%";
  const bool dots = name == "." || name == "..";
  std::string out;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte < 128 && (std::isalnum(byte) || c == '_' || c == '-' || (c == '.' && !dots));
    if (plain)
      out += c;
    else
      out += fmt::format("%{:02X}", byte);
  }
  return out;
}

}  // namespace mm::checkpoint
