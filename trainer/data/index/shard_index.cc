// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/index/shard_index.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstddef>
#include <cstring>
#include <unordered_map>

#include "common/error.h"
#include "common/files.h"
#include "trainer/data/tar.h"
#include "trainer/data/text/utf8.h"

namespace mm::data {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

struct ShardIndex::Header {
  char magic[8];
  uint32_t version, header_bytes;
  uint64_t file_bytes;
  uint64_t hash;  // XXH3-64 of the file with this field as 0
  uint64_t samples, parts, blocks, names, name_bytes, key_bytes;
  int64_t shard_bytes, shard_modified_ns;
  uint64_t structure;
  uint64_t has_content;
  Hash128 content;
};

namespace {

constexpr char magic[8] = {'M', 'M', 'I', 'D', 'X', '\r', '\n', '\x1a'};
constexpr uint32_t format_version = 1;

struct MemberName {
  std::string_view key;
  std::string part;  // empty: not a part of a sample
};

MemberName split_name(std::string_view name) {
  while (name.starts_with("./")) name.remove_prefix(2);
  const size_t slash = name.rfind('/'), base = slash == std::string_view::npos ? 0 : slash + 1;
  const size_t dot = name.find('.', base);
  if (dot == std::string_view::npos || dot == base) return {name, {}};
  std::string part(name.substr(dot + 1));
  std::transform(part.begin(), part.end(), part.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return {name.substr(0, dot), std::move(part)};
}

uint64_t name_hash(std::string_view name) {
  return XXH3_64bits(name.data(), name.size());
}

template <class T>
std::string_view bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Of a file's bytes, the header's hash field taken as 0.
uint64_t file_hash(std::string_view bytes, size_t hash_at) {
  constexpr char zeros[sizeof(uint64_t)] = {};
  XXH3_state_t* state = XXH3_createState();
  XXH3_64bits_reset(state);
  XXH3_64bits_update(state, bytes.data(), hash_at);
  XXH3_64bits_update(state, zeros, sizeof zeros);
  XXH3_64bits_update(state, bytes.data() + hash_at + sizeof zeros, bytes.size() - hash_at - sizeof zeros);
  const uint64_t hash = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return hash;
}

// Cuts sections off the front of a file; a count is checked before it is multiplied.
struct Cutter {
  std::string_view rest;
  const std::string& what;
  template <class T>
  std::span<const T> take(uint64_t count) {
    if (count > rest.size() / sizeof(T)) throw data_error(fmt::format("data: index {}: a section is longer than the file", what));
    const std::span<const T> section(reinterpret_cast<const T*>(rest.data()), count);
    rest.remove_prefix(count * sizeof(T));
    return section;
  }
  std::string_view take_text(uint64_t length) {
    const std::span<const char> text = take<char>(length);
    return {text.data(), text.size()};
  }
};

}  // namespace

ShardIndex ShardIndex::build(const std::vector<TarMember>& members, const std::vector<uint64_t>& hashes, const ShardFacts& facts) {
  // Parts of one sample mostly lie side by side, but archives that hold all pictures first exist, too.
  std::vector<std::pair<std::string_view, std::vector<Part>>> groups;
  std::unordered_map<std::string_view, size_t> group_of;
  std::unordered_map<uint64_t, std::string> names;
  for (size_t i = 0; i < members.size(); ++i) {
    const MemberName name = split_name(members[i].name);
    if (name.part.empty()) continue;
    const auto [at, added] = group_of.try_emplace(name.key, groups.size());
    if (added) groups.push_back({name.key, {}});
    const uint64_t id = name_hash(name.part);
    if (names.try_emplace(id, name.part).first->second != name.part)
      throw data_error(fmt::format("data: members '{}' and '{}' cannot be told apart by the hash of their names",
                                   printable(name.part), printable(names[id])));
    groups[at->second].second.push_back({members[i].offset, members[i].size, hashes.empty() ? 0 : hashes[i], id});
  }

  std::vector<Entry> entries;
  std::vector<Part> parts;
  std::string keys, name_text;
  std::vector<Name> name_table;
  for (const auto& [id, name] : names) {
    name_table.push_back({name_text.size(), name.size()});
    name_text += name;
  }
  XXH3_state_t* structure = XXH3_createState();
  XXH3_64bits_reset(structure);
  for (const auto& [key, of_key] : groups) {
    entries.push_back({keys.size(), parts.size(), static_cast<uint32_t>(key.size()), static_cast<uint32_t>(of_key.size())});
    keys += key;
    parts.insert(parts.end(), of_key.begin(), of_key.end());
    XXH3_64bits_update(structure, key.data(), key.size());
    for (const Part& part : of_key) {
      const uint64_t place[] = {part.name, static_cast<uint64_t>(part.offset), static_cast<uint64_t>(part.size)};
      XXH3_64bits_update(structure, place, sizeof place);
    }
  }

  Header header{};
  std::memcpy(header.magic, magic, sizeof magic);
  header.version = format_version;
  header.header_bytes = sizeof(Header);
  header.samples = entries.size();
  header.parts = parts.size();
  header.blocks = facts.blocks.size();
  header.names = name_table.size();
  header.name_bytes = name_text.size();
  header.key_bytes = keys.size();
  header.shard_bytes = facts.size;
  header.shard_modified_ns = facts.modified_ns;
  header.structure = XXH3_64bits_digest(structure);
  XXH3_freeState(structure);
  header.has_content = facts.content ? 1 : 0;
  if (facts.content) header.content = *facts.content;
  const std::string_view sections[] = {bytes_of(entries), bytes_of(parts), bytes_of(facts.blocks), bytes_of(name_table), name_text, keys};
  header.file_bytes = sizeof header;
  for (const std::string_view section : sections) header.file_bytes += section.size();
  std::string out;
  out.reserve(header.file_bytes);
  out.append(reinterpret_cast<const char*>(&header), sizeof header);
  for (const std::string_view section : sections) out.append(section);
  const uint64_t hash = file_hash(out, offsetof(Header, hash));
  std::memcpy(out.data() + offsetof(Header, hash), &hash, sizeof hash);
  return parse(std::move(out), "just made");
}

ShardIndex ShardIndex::parse(std::string bytes, const std::string& what) {
  ShardIndex index;
  const auto owner = std::make_shared<const std::string>(std::move(bytes));
  index.bytes_ = *owner;
  index.owner_ = owner;
  index.attach(what);
  return index;
}

ShardIndex ShardIndex::open(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) throw system_error("data: open index " + path, errno, exit_status::data);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw system_error("data: stat index " + path, errno, exit_status::data);
  if (!S_ISREG(status.st_mode)) throw data_error("data: index " + path + ": not a regular file");
  ShardIndex index;
  const auto size = static_cast<size_t>(status.st_size);
  if (size < sizeof(Header)) throw data_error("data: index " + path + ": cut short inside its header");
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd.get(), 0);
  if (memory == MAP_FAILED) {
    if (errno != ENOMEM) throw system_error("data: map index " + path, errno);
    return parse(read_file(path), path);  // more shards than the kernel gives a process mappings
  }
  index.owner_ = std::shared_ptr<const void>(memory, [size](const void* m) { ::munmap(const_cast<void*>(m), size); });
  index.bytes_ = {static_cast<const char*>(memory), size};
  index.attach(path);
  return index;
}

void ShardIndex::attach(const std::string& what) {
  const auto fail = [&](const char* reason) { throw data_error(fmt::format("data: index {}: {}", what, reason)); };
  if (bytes_.size() < sizeof(Header)) fail("cut short inside its header");
  const Header& h = header();
  if (std::memcmp(h.magic, magic, sizeof magic) != 0) fail("not an index of a shard");
  if (h.version != format_version || h.header_bytes != sizeof(Header)) fail("of another version: index the data again");
  if (h.file_bytes != bytes_.size()) fail("not as long as it says");
  if (file_hash(bytes_, offsetof(Header, hash)) != h.hash) fail("damaged: its hash does not match");
  Cutter cutter{bytes_.substr(sizeof(Header)), what};
  entries_ = cutter.take<Entry>(h.samples);
  parts_ = cutter.take<Part>(h.parts);
  blocks_ = cutter.take<Hash128>(h.blocks);
  names_ = cutter.take<Name>(h.names);
  name_text_ = cutter.take_text(h.name_bytes);
  key_text_ = cutter.take_text(h.key_bytes);
  if (!cutter.rest.empty()) fail("longer than its sections");

  if (h.shard_bytes < 0) fail("a shard of negative size");
  if (h.has_content > 1 || (h.has_content == 0 && h.blocks != 0)) fail("block hashes without a content hash");
  if (h.has_content == 1) {
    if (h.blocks != static_cast<uint64_t>((h.shard_bytes + block_bytes - 1) / block_bytes)) fail("too few or too many block hashes");
    if (hash_of({reinterpret_cast<const char*>(blocks_.data()), blocks_.size_bytes()}) != h.content) fail("the content hash is not that of the blocks");
  }
  std::vector<uint64_t> known;  // a few
  for (const Name& name : names_) {
    if (name.at > name_text_.size() || name.length > name_text_.size() - name.at) fail("a part's name lies outside");
    known.push_back(name_hash(name_text_.substr(name.at, name.length)));
  }
  for (const Entry& entry : entries_) {
    if (entry.key_at > key_text_.size() || entry.key_length > key_text_.size() - entry.key_at) fail("a key lies outside");
    if (entry.first_part > parts_.size() || entry.parts > parts_.size() - entry.first_part || entry.parts == 0) fail("parts lie outside");
  }
  std::sort(known.begin(), known.end());
  for (const Part& part : parts_) {
    if (part.offset < 0 || part.size < 0 || part.offset > h.shard_bytes || part.size > h.shard_bytes - part.offset)
      fail("a part lies outside of the shard");
    if (!std::binary_search(known.begin(), known.end(), part.name)) fail("a part without a name");
  }
}

const ShardIndex::Header& ShardIndex::header() const {
  return *reinterpret_cast<const Header*>(bytes_.data());
}

std::string_view ShardIndex::key(int64_t sample) const {
  const Entry& entry = entries_[static_cast<size_t>(sample)];
  return key_text_.substr(entry.key_at, entry.key_length);
}

std::span<const Part> ShardIndex::parts(int64_t sample) const {
  const Entry& entry = entries_[static_cast<size_t>(sample)];
  return parts_.subspan(entry.first_part, entry.parts);
}

std::vector<std::pair<uint64_t, std::string_view>> ShardIndex::part_names() const {
  std::vector<std::pair<uint64_t, std::string_view>> names;
  for (const Name& name : names_) {
    const std::string_view text = name_text_.substr(name.at, name.length);
    names.push_back({name_hash(text), text});
  }
  return names;
}

int64_t ShardIndex::shard_size() const {
  return header().shard_bytes;
}
int64_t ShardIndex::shard_modified_ns() const {
  return header().shard_modified_ns;
}
std::optional<Hash128> ShardIndex::content() const {
  return header().has_content == 1 ? std::optional(header().content) : std::nullopt;
}
uint64_t ShardIndex::structure() const {
  return header().structure;
}

}  // namespace mm::data
