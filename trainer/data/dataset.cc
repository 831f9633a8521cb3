// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/dataset.h"

#include <fmt/format.h>
#include <glob.h>
#include <xxhash.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "common/error.h"
#include "trainer/data/shard_files.h"
#include "trainer/data/tar.h"
#include "trainer/data/text/utf8.h"

namespace mm::data {
namespace {

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

struct GlobResult {
  glob_t found{};
  ~GlobResult() { ::globfree(&found); }
};

}  // namespace

std::vector<std::string> find_shards(const std::vector<std::string>& patterns) {
  std::vector<std::string> paths;
  if (patterns.empty()) throw data_error("data: no shards are named");
  for (const std::string& pattern : patterns) {
    GlobResult result;
    const int code = ::glob(pattern.c_str(), GLOB_ERR | GLOB_BRACE, nullptr, &result.found);
    if (code == GLOB_NOMATCH) throw data_error(fmt::format("data: no shard matches {}", pattern));
    if (code != 0) throw data_error(fmt::format("data: {}: a folder on the way cannot be read", pattern));
    paths.insert(paths.end(), result.found.gl_pathv, result.found.gl_pathv + result.found.gl_pathc);
  }
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

Dataset::Dataset() : files_(std::make_unique<ShardFiles>()) {}

Dataset Dataset::open_one(const std::string& path) {
  Dataset dataset;
  dataset.shards_.push_back({path});
  dataset.add_shard(0);
  return dataset;
}

Dataset::Dataset(const std::vector<std::string>& patterns) : Dataset() {
  const std::vector<std::string> paths = find_shards(patterns);
  shards_.resize(paths.size());
  for (size_t i = 0; i < paths.size(); ++i) {
    shards_[i].path = paths[i];
    add_shard(static_cast<uint32_t>(i));
  }
  if (entries_.empty())
    throw data_error(
        fmt::format("data: no sample in {}", paths.size() == 1 ? paths[0] : fmt::format("{} shards", paths.size())));
}

Dataset::~Dataset() = default;
Dataset::Dataset(Dataset&&) noexcept = default;

uint32_t Dataset::name_id(const std::string& name) {
  const auto [at, added] = name_ids_.try_emplace(name, static_cast<uint32_t>(names_.size()));
  if (added) names_.push_back(name);
  return at->second;
}

void Dataset::add_shard(uint32_t id) {
  Shard& shard = shards_[id];
  const UniqueFd fd = open_shard(shard.path, shard);
  const std::vector<TarMember> members =
      list_tar("data: " + shard.path, shard.size,
               [&](int64_t offset, char* to, size_t length) { return read_shard(shard, fd.get(), offset, to, length); });
  // Parts of one sample mostly lie side by side, but archives that hold all pictures first exist, too.
  struct Group {
    std::string_view key;
    std::vector<Part> parts;
  };
  std::vector<Group> groups;
  std::unordered_map<std::string_view, size_t> group_of;
  for (const TarMember& member : members) {
    const MemberName name = split_name(member.name);
    if (name.part.empty()) continue;
    const auto [at, added] = group_of.try_emplace(name.key, groups.size());
    if (added) groups.push_back({name.key, {}});
    groups[at->second].parts.push_back({member.offset, member.size, name_id(name.part)});
  }
  for (const Group& group : groups) {
    entries_.push_back(
        {keys_.size(), parts_.size(), static_cast<uint32_t>(group.key.size()), static_cast<uint32_t>(group.parts.size()), id});
    keys_.append(group.key);
    parts_.insert(parts_.end(), group.parts.begin(), group.parts.end());
  }
}

std::string_view Dataset::key(int64_t sample) const {
  const Entry& e = entries_[static_cast<size_t>(sample)];
  return std::string_view(keys_).substr(e.key_at, e.key_length);
}

std::span<const Part> Dataset::parts(int64_t sample) const {
  const Entry& e = entries_[static_cast<size_t>(sample)];
  return std::span(parts_).subspan(e.first_part, e.parts);
}

std::string Dataset::read(int64_t sample, const Part& part) const {
  const uint32_t id = entries_[static_cast<size_t>(sample)].shard;
  const Shard& shard = shards_[id];
  const std::shared_ptr<const UniqueFd> file = files_->get(id, shard);
  std::string content(static_cast<size_t>(part.size), '\0');
  if (read_shard(shard, file->get(), part.offset, content.data(), content.size()) < content.size())
    throw data_error(fmt::format("data: {}: offset {}: cut short since it was opened", shard.path, part.offset));
  return content;
}

std::string Dataset::fingerprint() const {
  int64_t bytes = 0;
  uint64_t hash = 0;
  const auto add = [&](const std::string& text) { hash = XXH3_64bits_withSeed(text.data(), text.size(), hash); };
  for (const Shard& shard : shards_) {
    bytes += shard.size;
    add(fmt::format("{} {}", std::filesystem::path(shard.path).filename().string(), shard.size));
  }
  for (int64_t i = 0; i < samples(); ++i) {
    std::string line(key(i));
    for (const Part& part : parts(i)) line += fmt::format("\n{} {} {}", part_name(part), part.offset, part.size);
    add(line);
  }
  return fmt::format("{} shards, {} samples, {} bytes, index {:016x}", shards_.size(), samples(), bytes, hash);
}

}  // namespace mm::data
