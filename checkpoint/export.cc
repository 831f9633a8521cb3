// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "checkpoint/dtype.h"
#include "checkpoint/hash.h"
#include "common/files.h"
#include "common/safetensors/writer.h"

namespace mm::checkpoint {
namespace {

using Item = std::pair<std::string, safetensors::TensorInfo>;
constexpr uint64_t piece_bytes = 16 * block_bytes;  // of a tensor in memory

uint64_t bytes_of(const TensorParts& t) {
  return static_cast<uint64_t>(elements(t.global_shape)) * size_of(t.dtype);
}

// The tensors of each file, in the order of their names.
std::vector<std::vector<Item>> shards_of(const StepReader& step, uint64_t shard_bytes) {
  std::vector<std::vector<Item>> shards;
  uint64_t filled = 0;
  for (const auto& [key, t] : step.tensors()) {
    if (key.second != "param") continue;
    if (shards.empty() || (filled > 0 && bytes_of(t) > shard_bytes - std::min(filled, shard_bytes))) {
      shards.emplace_back();
      filled = 0;
    }
    filled += bytes_of(t);
    shards.back().push_back({key.first, {safetensors_name(t.dtype), t.global_shape}});
  }
  return shards;
}

void write_tensor(StepReader& step, const std::string& name, safetensors::Writer& file, std::vector<char>& buffer,
                  const std::function<void(uint64_t)>& progress) {
  const TensorParts& t = step.tensors().at({name, "param"});
  const int64_t n = elements(t.global_shape), at_once = static_cast<int64_t>(piece_bytes / size_of(t.dtype));
  for (int64_t at = 0; at < n; at += at_once) {
    const int64_t end = std::min(n, at + at_once);
    buffer.resize(static_cast<size_t>(end - at) * size_of(t.dtype));
    std::vector<View> views;
    char* p = buffer.data();
    for (Box& b : boxes_of_range(t.global_shape, at, end)) {
      const size_t bytes = static_cast<size_t>(elements(b.shape)) * size_of(t.dtype);
      views.push_back({name, "param", t.dtype, t.global_shape, std::move(b), p});
      p += bytes;
    }
    step.read(views);
    file.append(buffer.data(), buffer.size());
    progress(buffer.size());
  }
}

}  // namespace

Exported export_safetensors(StepReader& step, const std::string& folder, uint64_t shard_bytes,
                            const std::function<void(uint64_t)>& progress) {
  const std::vector<std::vector<Item>> shards = shards_of(step, shard_bytes);
  if (shards.empty()) throw usage_error("checkpoint: export: the step has no tensor of role param");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw usage_error("checkpoint: export: create folder " + folder + ": " + error.message());

  const bool single = shards.size() == 1;
  Exported out;
  out.files = shards.size();
  nlohmann::ordered_json weight_map;
  std::vector<char> buffer;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        single ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    safetensors::Writer file(folder + "/" + name, shards[i]);
    for (const auto& [tensor, info] : file.tensors()) {
      write_tensor(step, tensor, file, buffer, progress);
      weight_map[tensor] = name;
      out.bytes += info.end - info.begin;
      ++out.tensors;
    }
    file.finish();
  }
  // The other form, where an earlier export left it, would be read instead of this one.
  const std::string index = folder + "/model.safetensors.index.json";
  if (single) {
    io::remove_tree(index);
  } else {
    const nlohmann::ordered_json j = {{"metadata", {{"total_size", out.bytes}}}, {"weight_map", weight_map}};
    write_file_durably(index, j.dump(2) + "\n");
    io::remove_tree(folder + "/model.safetensors");
  }
  const Facts& facts = step.manifest().facts;
  for (const auto& [fact, name] :
       {std::pair("model_config", "config.json"), {"preprocessor_config", "preprocessor_config.json"}}) {
    const auto found = facts.find(fact);
    if (found == facts.end()) continue;
    write_file_durably(folder + "/" + name, found->second);
    out.config = out.config || name == std::string("config.json");
  }
  return out;
}

}  // namespace mm::checkpoint
