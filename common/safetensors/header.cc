// SPDX-License-Identifier: Apache-2.0
#include "common/safetensors/header.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "common/error.h"

namespace mm::safetensors {
namespace {

using Json = nlohmann::json;

// The parser keeps the last of equal keys without a word; here they are refused, and so is a depth that the format never has.
Json parse_strictly(std::string_view text, const std::string& path) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > 8) throw usage_error(path + ": header: nested too deeply");
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second)
      throw usage_error(fmt::format("{}: header: \"{}\" stands twice", path, parsed.get<std::string>()));
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::exception& e) {
    throw usage_error(fmt::format("{}: header: {}", path, e.what()));
  }
}

uint64_t natural(const Json& value, const std::string& where) {
  if (!value.is_number_unsigned()) throw usage_error(where + " is not a whole number from 0");
  return value.get<uint64_t>();
}

const Json& member(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) throw usage_error(fmt::format("{}: {} is missing", where, key));
  return *found;
}

TensorInfo parse_tensor(const Json& entry, uint64_t data_bytes, const std::string& where) {
  if (!entry.is_object()) throw usage_error(where + " is not an object");
  TensorInfo info;
  const Json& dtype = member(entry, "dtype", where);
  if (!dtype.is_string() || element_size(dtype.get<std::string>()) == 0)
    throw usage_error(where + ": unknown dtype " + dtype.dump());
  info.dtype = dtype.get<std::string>();
  const Json& shape = member(entry, "shape", where);
  if (!shape.is_array() || shape.size() > 8) throw usage_error(where + ": shape is not a list of at most 8 extents");
  uint64_t bytes = element_size(info.dtype);
  for (const Json& extent : shape) {
    const uint64_t n = natural(extent, where + ": an extent of shape");
    if (n > uint64_t{1} << 62 || __builtin_mul_overflow(bytes, n, &bytes)) throw usage_error(where + ": shape is too large");
    info.shape.push_back(static_cast<int64_t>(n));
  }
  const Json& offsets = member(entry, "data_offsets", where);
  if (!offsets.is_array() || offsets.size() != 2) throw usage_error(where + ": data_offsets is not a pair");
  info.begin = natural(offsets[0], where + ": data_offsets");
  info.end = natural(offsets[1], where + ": data_offsets");
  if (info.begin > info.end || info.end > data_bytes)
    throw usage_error(
        fmt::format("{}: data_offsets [{}, {}] do not lie in the {} bytes of data", where, info.begin, info.end, data_bytes));
  if (info.end - info.begin != bytes)
    throw usage_error(
        fmt::format("{}: data_offsets hold {} bytes and the shape needs {}", where, info.end - info.begin, bytes));
  return info;
}

// Tensors lie one after another over all of the data: neither overlap nor bytes that belong to none.
void check_coverage(const std::map<std::string, TensorInfo>& tensors, uint64_t data_bytes, const std::string& path) {
  std::vector<std::pair<const std::string*, const TensorInfo*>> order;
  for (const auto& [name, info] : tensors) order.emplace_back(&name, &info);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  uint64_t at = 0;
  for (const auto& [name, info] : order) {
    if (info->begin != at)
      throw usage_error(fmt::format("{}: tensor {}: starts at byte {} of the data, {} one that ends at {}", path, *name,
                                    info->begin, info->begin < at ? "overlapping" : "leaving a hole after", at));
    at = info->end;
  }
  if (at != data_bytes) throw usage_error(fmt::format("{}: {} bytes of data belong to no tensor", path, data_bytes - at));
}

}  // namespace

size_t element_size(std::string_view dtype) {
  static const std::map<std::string_view, size_t> sizes = {{"F64", 8}, {"I64", 8}, {"U64", 8},  {"F32", 4},     {"I32", 4},
                                                           {"U32", 4}, {"F16", 2}, {"BF16", 2}, {"I16", 2},     {"U16", 2},
                                                           {"I8", 1},  {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  const auto found = sizes.find(dtype);
  return found == sizes.end() ? 0 : found->second;
}

std::map<std::string, TensorInfo> parse_header(std::string_view json, uint64_t data_begin, uint64_t data_bytes,
                                               const std::string& path) {
  const Json header = parse_strictly(json, path);
  if (!header.is_object()) throw usage_error(path + ": header is not an object");
  std::map<std::string, TensorInfo> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    tensors[name] = parse_tensor(entry, data_bytes, fmt::format("{}: tensor {}", path, name));
  }
  check_coverage(tensors, data_bytes, path);
  for (auto& [name, info] : tensors) {
    info.begin += data_begin;
    info.end += data_begin;
  }
  return tensors;
}

std::map<std::string, std::string> parse_index(std::string_view json, const std::string& path) {
  const Json index = parse_strictly(json, path);
  const Json& weights = index.is_object() ? member(index, "weight_map", path) : index;
  if (!weights.is_object()) throw usage_error(path + ": weight_map is not an object");
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : weights.items()) {
    if (!file.is_string() || file.get<std::string>().empty() || file.get<std::string>().find('/') != std::string::npos)
      throw usage_error(fmt::format("{}: weight_map: {}: {} is no name of a file in the folder", path, name, file.dump()));
    files[name] = file.get<std::string>();
  }
  return files;
}

int64_t TensorInfo::elements() const {
  int64_t n = 1;
  for (const int64_t e : shape) n *= e;
  return n;
}

std::string format_header(const std::vector<std::pair<std::string, TensorInfo>>& tensors) {
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  for (const auto& [name, info] : tensors)
    header[name] = {{"dtype", info.dtype}, {"shape", info.shape}, {"data_offsets", {info.begin, info.end}}};
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string out(8, '\0');
  for (size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(text.size() >> (8 * i));
  return out + text;
}

}  // namespace mm::safetensors
