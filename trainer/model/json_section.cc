// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/json_section.h"

#include <filesystem>

#include "common/error.h"
#include "common/files.h"

namespace mm::model {

using nlohmann::json;

json parse_json_file(const std::string& path) {
  try {
    json parsed = json::parse(read_file(path));
    if (!parsed.is_object()) throw usage_error("model: " + path + ": not a JSON object");
    return parsed;
  } catch (const json::exception& e) {
    throw usage_error("model: " + path + ": " + e.what());
  }
}

void JsonSection::refuse(const std::string& key, const std::string& why) const {
  const std::string value = object_.contains(key) ? object_.at(key).dump() : "(absent)";
  throw usage_error("model: " + file_ + ": " + path_ + key + " = " + value + ": " + why);
}

JsonSection JsonSection::section(const std::string& key) const {
  if (!has(key) || !object_.at(key).is_object()) refuse(key, "an object is needed");
  return JsonSection(object_.at(key), file_, path_ + key + ".");
}

std::string JsonSection::text(const std::string& key, const std::string& otherwise) const {
  if (!has(key)) return otherwise;
  if (!object_.at(key).is_string()) refuse(key, "a string is needed");
  return object_.at(key).get<std::string>();
}

int64_t JsonSection::integer(const std::string& key, int64_t otherwise) const {
  if (!has(key)) return otherwise;
  if (!object_.at(key).is_number_integer()) refuse(key, "an integer is needed");
  return object_.at(key).get<int64_t>();
}

int JsonSection::count(const std::string& key, int otherwise) const {
  const int64_t value = integer(key, otherwise);
  if (value < 1 || value > (1 << 28)) refuse(key, "a positive number is needed");
  return static_cast<int>(value);
}

double JsonSection::number(const std::string& key, double otherwise) const {
  if (!has(key)) return otherwise;
  if (!object_.at(key).is_number()) refuse(key, "a number is needed");
  return object_.at(key).get<double>();
}

double JsonSection::positive(const std::string& key, double otherwise) const {
  if (!has(key)) return otherwise;
  if (!object_.at(key).is_number() || !(object_.at(key).get<double>() > 0)) refuse(key, "a positive number is needed");
  return object_.at(key).get<double>();
}

bool JsonSection::flag(const std::string& key, bool otherwise) const {
  if (!has(key)) return otherwise;
  if (!object_.at(key).is_boolean()) refuse(key, "true or false is needed");
  return object_.at(key).get<bool>();
}

void JsonSection::only(const std::string& key, const std::string& supported, const std::string& otherwise) const {
  if (text(key, otherwise) != supported) refuse(key, "only \"" + supported + "\" is supported");
}

void JsonSection::only(const std::string& key, bool supported) const {
  if (flag(key, supported) != supported) refuse(key, std::string("only ") + (supported ? "true" : "false") + " is supported");
}

void JsonSection::absent(const std::string& key) const {
  if (has(key)) refuse(key, "not supported");
}

std::array<double, 3> JsonSection::channels(const std::string& key) const {
  const json& list = object_.at(key);
  std::array<double, 3> out{};
  if (!list.is_array() || list.size() != 3) refuse(key, "three numbers are needed");
  for (size_t i = 0; i < 3; ++i) {
    if (!list[i].is_number()) refuse(key, "three numbers are needed");
    out[i] = list[i].get<double>();
  }
  return out;
}

Activation read_activation(const JsonSection& s, const std::string& otherwise) {
  const std::string name = s.text("hidden_act", otherwise);
  if (name == "gelu") return Activation::gelu;
  if (name == "gelu_pytorch_tanh") return Activation::gelu_tanh;
  if (name == "quick_gelu") return Activation::quick_gelu;
  s.refuse("hidden_act", "gelu, gelu_pytorch_tanh and quick_gelu are supported");
}

VisionConfig read_vision(const JsonSection& s) {
  VisionConfig v;
  const std::string type = s.text("model_type", "");
  if (type != "clip_vision_model" && type != "siglip_vision_model")
    s.refuse("model_type", "clip_vision_model and siglip_vision_model are supported");
  v.clip = type == "clip_vision_model";
  v.head = !v.clip && s.flag("vision_use_head", true);
  v.hidden = s.count("hidden_size", 768);
  v.intermediate = s.count("intermediate_size", 3072);
  v.layers = s.count("num_hidden_layers", 12);
  v.heads = s.count("num_attention_heads", 12);
  v.image_size = s.count("image_size", 224);
  v.patch = s.count("patch_size", v.clip ? 32 : 16);
  v.activation = read_activation(s, v.clip ? "quick_gelu" : "gelu_pytorch_tanh");
  v.eps = s.positive("layer_norm_eps", v.clip ? 1e-5 : 1e-6);
  if (s.integer("num_channels", 3) != 3) s.refuse("num_channels", "3 are supported");
  if (v.hidden % v.heads != 0) s.refuse("num_attention_heads", "does not divide hidden_size " + std::to_string(v.hidden));
  if (v.patch > v.image_size) s.refuse("patch_size", "above image_size " + std::to_string(v.image_size));
  return v;
}

void read_preprocessor(const std::string& folder, VisionConfig& v) {
  const std::string path = folder + "/preprocessor_config.json";
  if (!std::filesystem::exists(path)) return;
  const json root = parse_json_file(path);
  const JsonSection s(root, path, "");
  if (s.has("image_mean")) v.mean = s.channels("image_mean");
  if (s.has("image_std")) v.deviation = s.channels("image_std");
  for (double d : v.deviation)
    if (!(d > 0)) s.refuse("image_std", "positive numbers are needed");
}

}  // namespace mm::model
