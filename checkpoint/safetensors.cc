// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

namespace mm::checkpoint {
namespace {

const char* safetensors_name(DType t) {
  switch (t) {
    case DType::float64:
      return "F64";
    case DType::float32:
      return "F32";
    case DType::bfloat16:
      return "BF16";
    case DType::int64:
      return "I64";
    case DType::uint8:
      return "U8";
  }
  return "";
}

struct Item {
  const std::string* name;
  const TensorParts* tensor;
  uint64_t bytes() const { return static_cast<uint64_t>(elements(tensor->global_shape)) * size_of(tensor->dtype); }
};

std::vector<Item> items_of(const StepReader& step) {
  std::vector<Item> items;
  for (const auto& [key, tensor] : step.tensors()) {
    if (key.second == "param") items.push_back({&key.first, &tensor});
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return size_of(a.tensor->dtype) > size_of(b.tensor->dtype); });
  return items;
}

std::string header_of(const std::vector<Item>& items) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  uint64_t at = 0;
  for (const Item& i : items) {
    header[*i.name] = {{"dtype", safetensors_name(i.tensor->dtype)},
                       {"shape", i.tensor->global_shape},
                       {"data_offsets", {at, at + i.bytes()}}};
    at += i.bytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

// Writes the file under a temporary name and puts it in its place when it is complete.
template <class F>
void replace_file(const std::string& path, F&& fill) {
  const std::string temporary = path + ".tmp" + std::to_string(::getpid());
  io::remove_tree(temporary);
  try {
    io::File file = io::File::create(temporary);
    fill(file);
    file.sync();
    file.close();
    io::rename(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

}  // namespace

Exported export_safetensors(StepReader& step, const std::string& folder, const std::function<void(uint64_t)>& progress) {
  const std::vector<Item> items = items_of(step);
  if (items.empty()) throw usage_error("checkpoint: export: the step has no tensor of role param");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw usage_error("checkpoint: export: create folder " + folder + ": " + error.message());

  Exported out;
  replace_file(folder + "/model.safetensors", [&](io::File& file) {
    const std::string header = header_of(items);
    file.write(header.data(), header.size(), 0);
    std::vector<char> data;
    for (const Item& i : items) {
      data.resize(i.bytes());
      const Extents& shape = i.tensor->global_shape;
      step.read({{*i.name, "param", i.tensor->dtype, shape, {Extents(shape.size(), 0), shape}, data.data()}});
      file.write(data.data(), data.size(), header.size() + out.bytes);
      out.bytes += data.size();
      ++out.tensors;
      progress(data.size());
    }
  });
  const Facts& facts = step.manifest().facts;
  if (const auto config = facts.find("model_config"); config != facts.end()) {
    replace_file(folder + "/config.json", [&](io::File& file) { file.write(config->second.data(), config->second.size(), 0); });
    out.config = true;
  }
  io::sync_folder(folder);
  return out;
}

}  // namespace mm::checkpoint
