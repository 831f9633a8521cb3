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

constexpr std::string_view magic = "mmindex1";
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

Entry read_entry(Reader& in, uint64_t file_size, uint64_t hash_count) {
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
  const uint64_t bytes = e.bytes();
  if (bytes > file_size || e.offset > file_size - bytes)
    in.fail(fmt::format("tensor {}: its payload goes beyond the file", e.name));
  const uint64_t blocks = e.blocks();
  if (blocks > hash_count || e.first_block > hash_count - blocks)
    in.fail(fmt::format("tensor {}: its hashes are not there", e.name));
  return e;
}

std::vector<Range> payload_ranges(const std::vector<Entry>& entries) {
  std::vector<Range> ranges;
  for (const Entry& e : entries) {
    if (e.bytes() > 0) ranges.push_back({e.offset, e.offset + e.bytes()});
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  return ranges;
}

}  // namespace

uint64_t Entry::blocks() const {
  return (bytes() + block_bytes - 1) / block_bytes;
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
  }
  return out;
}

RankIndex decode_index(const std::string& blob, uint64_t file_size, uint64_t hash_count, const std::string& where) {
  Reader in(blob, where);
  if (blob.size() < magic.size() || in.bytes(magic.size()) != magic) in.fail("no index where the manifest says");
  RankIndex index;
  index.identity.writer = in.bytes(writer_length);
  index.identity.step = in.get<int64_t>();
  index.identity.rank = static_cast<int>(in.get<uint32_t>());
  index.identity.ranks = static_cast<int>(in.get<uint32_t>());
  const auto count = in.get<uint64_t>();
  for (uint64_t i = 0; i < count; ++i) index.entries.push_back(read_entry(in, file_size, hash_count));
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
