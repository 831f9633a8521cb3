// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/index/version.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/files.h"
#include "trainer/data/index/link_new.h"
#include "trainer/data/text/utf8.h"

namespace mm::data {
namespace {

using Json = nlohmann::json;

constexpr const char* format_name = "mm-train data set 1";

std::string latest_path(const std::string& folder) {
  return folder + "/dataset.json";
}
std::string numbered_path(const std::string& folder, int64_t number) {
  return fmt::format("{}/dataset-{}.json", folder, number);
}
bool exists(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

Hash128 id_of(const std::vector<IndexedShard>& shards) {
  std::string lines;
  for (const IndexedShard& s : shards) lines += fmt::format("{}\n{} {}\n", s.name, s.size, hex(s.content));
  return hash_of(lines);
}

// Of all that the id does not cover.
uint64_t check_of(const Version& version) {
  std::string lines = fmt::format("{} {} {}\n", version.number, hex(version.id), version.parent ? hex(*version.parent) : "");
  for (const IndexedShard& s : version.shards) lines += fmt::format("{} {} {:016x}\n", s.modified_ns, s.samples, s.structure);
  return XXH3_64bits(lines.data(), lines.size());
}

// Values of a JSON object, each of the right kind or an Error.
struct Fields {
  const Json& object;
  const std::string& path;

  [[noreturn]] void fail(const char* key) const { throw data_error(fmt::format("data: {}: damaged: \"{}\"", path, key)); }
  const Json& at(const char* key) const {
    if (!object.is_object() || !object.contains(key)) fail(key);
    return object[key];
  }
  int64_t number(const char* key) const {
    const Json& value = at(key);
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) || value.get<int64_t>() < 0) fail(key);
    return value.get<int64_t>();
  }
  std::string text(const char* key) const {
    const Json& value = at(key);
    if (!value.is_string()) fail(key);
    return value.get<std::string>();
  }
  Hash128 hash(const char* key) const {
    const std::optional<Hash128> value = parse_hash(text(key));
    if (!value) fail(key);
    return *value;
  }
  uint64_t hash64(const char* key) const {
    const std::string value = text(key);
    uint64_t out = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out, 16);
    if (error != std::errc() || value.size() != 16 || end != value.data() + 16) fail(key);
    return out;
  }
};

}  // namespace

std::string index_path(const std::string& folder, const std::string& shard_name) {
  return folder + "/" + shard_name + ".mmidx";
}

Version make_version(std::vector<IndexedShard> shards, const std::optional<Version>& parent) {
  Version version;
  version.shards = std::move(shards);
  std::sort(version.shards.begin(), version.shards.end(), [](const IndexedShard& a, const IndexedShard& b) { return a.name < b.name; });
  version.id = id_of(version.shards);
  version.number = parent ? parent->number + 1 : 1;
  if (parent) version.parent = parent->id;
  return version;
}

std::string to_json(const Version& version) {
  int64_t samples = 0, bytes = 0;
  std::string shards;
  for (const IndexedShard& s : version.shards) {
    samples += s.samples, bytes += s.size;
    shards += fmt::format("{}\n  {{\"name\": {}, \"size\": {}, \"modified_ns\": {}, \"samples\": {}, \"structure\": \"{:016x}\", \"content\": \"{}\"}}",
                          shards.empty() ? "" : ",", json_string(s.name), s.size, s.modified_ns, s.samples, s.structure, hex(s.content));
  }
  return fmt::format("{{\"format\": \"{}\",\n \"number\": {},\n \"version\": \"{}\",\n \"parent\": {},\n \"samples\": {},\n \"bytes\": {},\n"
                     " \"shards\": [{}],\n \"check\": \"{:016x}\"}}\n",
                     format_name, version.number, hex(version.id), version.parent ? "\"" + hex(*version.parent) + "\"" : "null", samples,
                     bytes, shards, check_of(version));
}

Version parse_version(std::string_view text, const std::string& path) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) throw data_error("data: " + path + ": not JSON");
  const Fields fields{json, path};
  if (fields.text("format") != format_name) throw data_error("data: " + path + ": of another format: index the data again");
  Version version;
  version.number = fields.number("number");
  version.id = fields.hash("version");
  if (!fields.at("parent").is_null()) version.parent = fields.hash("parent");
  const Json& shards = fields.at("shards");
  if (!shards.is_array()) fields.fail("shards");
  for (const Json& item : shards) {
    const Fields of{item, path};
    IndexedShard& s = version.shards.emplace_back();
    s = {of.text("name"), of.number("size"), of.number("modified_ns"), of.number("samples"), of.hash64("structure"), of.hash("content")};
    if (s.name.empty() || s.name.find('/') != std::string::npos || s.name.find('\0') != std::string::npos) of.fail("name");
    if (version.shards.size() > 1 && !(version.shards[version.shards.size() - 2].name < s.name)) of.fail("name");
  }
  if (id_of(version.shards) != version.id) fields.fail("version");
  if (check_of(version) != fields.hash64("check")) fields.fail("check");
  return version;
}

bool is_foreign(const std::string& folder) {
  const std::string path = latest_path(folder);
  if (!exists(path)) return false;
  const Json json = Json::parse(read_file(path), nullptr, false);
  return !json.is_object() || !json.contains("format") || json["format"] != format_name;
}

const IndexedShard* find_shard(const Version& version, const std::string& name) {
  const auto found = std::lower_bound(version.shards.begin(), version.shards.end(), name,
                                      [](const IndexedShard& s, const std::string& n) { return s.name < n; });
  return found != version.shards.end() && found->name == name ? &*found : nullptr;
}

std::optional<Version> newest_version(const std::string& folder) {
  std::optional<Version> newest;
  if (exists(latest_path(folder))) newest = parse_version(read_file(latest_path(folder)), latest_path(folder));
  int64_t number = newest ? newest->number : 0;
  while (exists(numbered_path(folder, number + 1))) ++number;
  if (number == (newest ? newest->number : 0)) return newest;
  return parse_version(read_file(numbered_path(folder, number)), numbered_path(folder, number));
}

Version find_version(const std::string& folder, const std::string& id) {
  std::optional<Version> version = newest_version(folder);
  std::string known;
  for (int64_t number = version ? version->number : 0; version; --number) {
    if (!id.empty() && hex(version->id).starts_with(id)) return *version;
    known += (known.empty() ? "" : ", ") + hex(version->id).substr(0, 12);
    if (number <= 1 || !exists(numbered_path(folder, number - 1))) break;
    version = parse_version(read_file(numbered_path(folder, number - 1)), numbered_path(folder, number - 1));
  }
  throw data_error(fmt::format("data: {}: no version {}; {}", folder, id, known.empty() ? "the data is not indexed" : "there are " + known));
}

bool publish_version(const std::string& folder, const Version& version) {
  const std::string text = to_json(version), temporary = fmt::format("{}/.dataset-{}.{}", folder, version.number, ::getpid());
  write_file_durably(temporary, text);
  const int linked = link_new(temporary, numbered_path(folder, version.number));
  const int reason = errno;
  ::unlink(temporary.c_str());
  if (linked != 0 && reason == EEXIST) return false;
  if (linked != 0) throw system_error("data: link " + numbered_path(folder, version.number), reason);
  write_file_durably(latest_path(folder), text);  // syncs the folder, too
  return true;
}

}  // namespace mm::data
