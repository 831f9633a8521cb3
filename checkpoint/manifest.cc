// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "checkpoint/hash.h"
#include "checkpoint/io.h"

namespace mm::checkpoint {
namespace {

using nlohmann::json;

constexpr int format_version = 2, oldest_version = 1;  // 1 knew neither compressed payload nor small blocks
constexpr uint64_t most_manifest_bytes = uint64_t{256} << 20;
const std::string last_line_begin = "\"xxh3_128\": \"";
const std::string last_line_end = "\"}\n";

json json_of(const FileRecord& r) {
  json j = {{"size", r.size},       {"index", {r.index_offset, r.index_bytes}}, {"hashes", {r.hash_offset, r.hash_count}},
            {"payload", r.payload}, {"index_xxh3_128", r.index_hash},           {"structure_xxh3_128", r.structure_hash}};
  if (r.stored != r.payload) j["stored"] = r.stored;
  return j;
}

FileRecord file_record_of(const json& j) {
  FileRecord r;
  r.size = j.at("size").get<uint64_t>();
  r.index_offset = j.at("index").at(0).get<uint64_t>();
  r.index_bytes = j.at("index").at(1).get<uint64_t>();
  r.hash_offset = j.at("hashes").at(0).get<uint64_t>();
  r.hash_count = j.at("hashes").at(1).get<uint64_t>();
  r.payload = j.at("payload").get<uint64_t>();
  r.stored = j.value("stored", r.payload);
  r.index_hash = j.at("index_xxh3_128").get<std::string>();
  r.structure_hash = j.at("structure_xxh3_128").get<std::string>();
  return r;
}

}  // namespace

uint64_t Manifest::payload() const {
  uint64_t sum = 0;
  for (const FileRecord& f : files) sum += f.payload;
  return sum;
}

uint64_t Manifest::stored() const {
  uint64_t sum = 0;
  for (const FileRecord& f : files) sum += f.stored;
  return sum;
}

std::string rank_file_name(int64_t rank) {
  return fmt::format("rank-{:05}.h5", rank);
}

std::string text_of(const FileRecord& record) {
  return json_of(record).dump();
}
FileRecord parse_file_record(const std::string& text) {
  return file_record_of(json::parse(text));
}

std::string text_of(const Manifest& m) {
  json files = json::array();
  for (const FileRecord& f : m.files) files.push_back(json_of(f));
  std::string out = "{\n";
  auto add = [&](const char* key, const json& value, int indent = -1) {
    out += fmt::format("\"{}\": {},\n", key, value.dump(indent));
  };
  add("format", "mm-train checkpoint");
  add("version", format_version);
  add("step", m.step);
  add("writer", m.writer);
  add("program", m.program);
  add("saved_at", m.saved_at);
  add("seconds", m.seconds);
  add("epoch", m.epoch);
  add("payload", m.payload());
  if (!m.tiers.empty()) add("tiers", m.tiers);
  add("facts", m.facts, 1);
  add("files", files, 1);
  return out + last_line_begin + hash128(out) + last_line_end;
}

Manifest parse_manifest(const std::string& text, const std::string& where) {
  const size_t tail = last_line_begin.size() + 32 + last_line_end.size();
  if (text.size() < tail) throw BadStep("checkpoint: " + where + ": cut short");
  const std::string body = text.substr(0, text.size() - tail);
  if (text.substr(body.size()) != last_line_begin + hash128(body) + last_line_end) {
    throw BadStep("checkpoint: " + where + ": its hash does not hold");
  }
  return parse_manifest_body(text, where);
}

Manifest parse_manifest_body(const std::string& text, const std::string& where) {
  try {
    const json j = json::parse(text);
    if (j.at("format").get<std::string>() != "mm-train checkpoint")
      throw BadStep("checkpoint: " + where + ": not an mm-train checkpoint");
    const int version = j.at("version").get<int>();
    if (version < oldest_version || version > format_version) {
      throw usage_error(fmt::format("checkpoint: {}: format version {}; this program reads versions {} to {}", where, version,
                                    oldest_version, format_version));
    }
    Manifest m;
    m.step = j.at("step").get<int64_t>();
    m.writer = j.at("writer").get<std::string>();
    m.program = j.at("program").get<std::string>();
    m.saved_at = j.at("saved_at").get<int64_t>();
    m.seconds = j.value("seconds", 0.0);
    m.epoch = j.value("epoch", int64_t{0});
    m.tiers = j.value("tiers", "");
    m.facts = j.at("facts").get<Facts>();
    for (const json& f : j.at("files")) m.files.push_back(file_record_of(f));
    return m;
  } catch (const json::exception& e) {
    throw BadStep("checkpoint: " + where + ": " + e.what());
  }
}

Manifest read_manifest(const std::string& step_folder, int64_t step) {
  const std::string path = step_folder + "/manifest.json";
  std::string text;
  try {
    text = io::read_file(path, most_manifest_bytes);
  } catch (const io::Failure& e) {
    if (e.is_of_content()) throw BadStep(e.what());
    throw;
  }
  Manifest m = parse_manifest(text, path);
  if (m.step != step) throw BadStep(fmt::format("checkpoint: {}: it is of step {}, not {}", path, m.step, step));
  return m;
}

}  // namespace mm::checkpoint
