// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/config.h"

#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/files.h"

namespace mm::model {
namespace {

using nlohmann::json;

json parse_file(const std::string& path) {
  try {
    json parsed = json::parse(read_file(path));
    if (!parsed.is_object()) throw usage_error("model: " + path + ": not a JSON object");
    return parsed;
  } catch (const json::exception& e) {
    throw usage_error("model: " + path + ": " + e.what());
  }
}

// One JSON object of the file; every message names the file, the key with its path, and the value.
class Section {
 public:
  Section(const json& object, std::string file, std::string path)
      : object_(object), file_(std::move(file)), path_(std::move(path)) {}

  [[noreturn]] void refuse(const std::string& key, const std::string& why) const {
    const std::string value = object_.contains(key) ? object_.at(key).dump() : "(absent)";
    throw usage_error("model: " + file_ + ": " + path_ + key + " = " + value + ": " + why);
  }
  bool has(const std::string& key) const { return object_.contains(key) && !object_.at(key).is_null(); }
  Section section(const std::string& key) const {
    if (!has(key) || !object_.at(key).is_object()) refuse(key, "an object is needed");
    return Section(object_.at(key), file_, path_ + key + ".");
  }
  std::string text(const std::string& key, const std::string& otherwise) const {
    if (!has(key)) return otherwise;
    if (!object_.at(key).is_string()) refuse(key, "a string is needed");
    return object_.at(key).get<std::string>();
  }
  int64_t integer(const std::string& key, int64_t otherwise) const {
    if (!has(key)) return otherwise;
    if (!object_.at(key).is_number_integer()) refuse(key, "an integer is needed");
    return object_.at(key).get<int64_t>();
  }
  int count(const std::string& key, int otherwise) const {
    const int64_t value = integer(key, otherwise);
    if (value < 1 || value > (1 << 28)) refuse(key, "a positive number is needed");
    return static_cast<int>(value);
  }
  double positive(const std::string& key, double otherwise) const {
    if (!has(key)) return otherwise;
    if (!object_.at(key).is_number() || !(object_.at(key).get<double>() > 0)) refuse(key, "a positive number is needed");
    return object_.at(key).get<double>();
  }
  bool flag(const std::string& key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!object_.at(key).is_boolean()) refuse(key, "true or false is needed");
    return object_.at(key).get<bool>();
  }
  void only(const std::string& key, const std::string& supported, const std::string& otherwise) const {
    if (text(key, otherwise) != supported) refuse(key, "only \"" + supported + "\" is supported");
  }
  void only(const std::string& key, bool supported) const {
    if (flag(key, supported) != supported) refuse(key, std::string("only ") + (supported ? "true" : "false") + " is supported");
  }
  void absent(const std::string& key) const {
    if (has(key)) refuse(key, "not supported");
  }
  std::array<double, 3> channels(const std::string& key) const {
    const json& list = object_.at(key);
    std::array<double, 3> out{};
    if (!list.is_array() || list.size() != 3) refuse(key, "three numbers are needed");
    for (size_t i = 0; i < 3; ++i) {
      if (!list[i].is_number()) refuse(key, "three numbers are needed");
      out[i] = list[i].get<double>();
    }
    return out;
  }

 private:
  const json& object_;
  std::string file_, path_;
};

Activation activation(const Section& s, const std::string& otherwise) {
  const std::string name = s.text("hidden_act", otherwise);
  if (name == "gelu") return Activation::gelu;
  if (name == "gelu_pytorch_tanh") return Activation::gelu_tanh;
  if (name == "quick_gelu") return Activation::quick_gelu;
  s.refuse("hidden_act", "gelu, gelu_pytorch_tanh and quick_gelu are supported");
}

VisionConfig vision(const Section& s) {
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
  v.activation = activation(s, v.clip ? "quick_gelu" : "gelu_pytorch_tanh");
  v.eps = s.positive("layer_norm_eps", v.clip ? 1e-5 : 1e-6);
  if (s.integer("num_channels", 3) != 3) s.refuse("num_channels", "3 are supported");
  if (v.hidden % v.heads != 0) s.refuse("num_attention_heads", "does not divide hidden_size " + std::to_string(v.hidden));
  if (v.patch > v.image_size) s.refuse("patch_size", "above image_size " + std::to_string(v.image_size));
  return v;
}

TextConfig text(const Section& s) {
  TextConfig t;
  const std::string type = s.text("model_type", "");
  if (type != "llama" && type != "qwen2") s.refuse("model_type", "llama and qwen2 are supported");
  t.qwen2 = type == "qwen2";
  t.vocabulary = s.count("vocab_size", t.qwen2 ? 151936 : 32000);
  t.hidden = s.count("hidden_size", 4096);
  t.intermediate = s.count("intermediate_size", t.qwen2 ? 22016 : 11008);
  t.layers = s.count("num_hidden_layers", 32);
  t.heads = s.count("num_attention_heads", 32);
  t.kv_heads = s.count("num_key_value_heads", t.heads);
  t.max_positions = s.has("max_position_embeddings") ? s.count("max_position_embeddings", 0) : 0;
  t.eps = s.positive("rms_norm_eps", 1e-6);
  t.rope_theta = s.positive("rope_theta", 10000.0);
  t.attention_bias = s.flag("attention_bias", false) && !t.qwen2;
  t.tied = s.flag("tie_word_embeddings", false);
  s.only("hidden_act", "silu", "silu");
  s.only("mlp_bias", false);
  s.only("use_sliding_window", false);
  s.absent("rope_scaling");
  if (t.hidden % t.heads != 0) s.refuse("num_attention_heads", "does not divide hidden_size " + std::to_string(t.hidden));
  if (t.heads % t.kv_heads != 0)
    s.refuse("num_key_value_heads", "does not divide num_attention_heads " + std::to_string(t.heads));
  if (t.head_size() % 2 != 0) s.refuse("num_attention_heads", "heads of " + std::to_string(t.head_size()) + " are odd");
  if (s.integer("head_dim", t.head_size()) != t.head_size())
    s.refuse("head_dim", "only hidden_size / num_attention_heads is supported");
  return t;
}

// vision_feature_layer is an index into the hidden states, of which the first is the embedding.
int used_layers(const Section& s, int layers) {
  const int64_t index = s.integer("vision_feature_layer", -2);
  const int64_t used = index < 0 ? layers + 1 + index : index;
  if (used < 0 || used > layers) s.refuse("vision_feature_layer", "the tower has " + std::to_string(layers) + " layers");
  return static_cast<int>(used);
}

void read_preprocessor(const std::string& path, VisionConfig& v) {
  const json root = parse_file(path);
  const Section s(root, path, "");
  if (s.has("image_mean")) v.mean = s.channels("image_mean");
  if (s.has("image_std")) v.deviation = s.channels("image_std");
  for (double d : v.deviation)
    if (!(d > 0)) s.refuse("image_std", "positive numbers are needed");
}

}  // namespace

int VlmConfig::positions_per_image() const {
  return vision.positions() - (drop_class_token ? 1 : 0);
}

data::SequenceRule VlmConfig::sequence_rule(int64_t max_length) const {
  data::SequenceRule rule;
  rule.image_size = vision.image_size;
  rule.positions_per_image = positions_per_image();
  rule.image_token = image_token;
  rule.max_length =
      max_length == 0 || (text.max_positions != 0 && text.max_positions < max_length) ? text.max_positions : max_length;
  rule.vocabulary = text.vocabulary;
  return rule;
}

VlmConfig load_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  const json root = parse_file(path);
  const Section s(root, path, "");
  s.only("model_type", "llava", "");
  s.only("projector_hidden_act", "gelu", "gelu");
  s.only("multimodal_projector_bias", true);
  VlmConfig c;
  c.vision = vision(s.section("vision_config"));
  c.text = text(s.section("text_config"));
  c.image_token = static_cast<int>(s.integer("image_token_index", s.integer("image_token_id", 32000)));
  if (c.image_token < 0 || c.image_token >= c.text.vocabulary)
    s.refuse("image_token_index", "the vocabulary has " + std::to_string(c.text.vocabulary));
  c.vision_layers = used_layers(s, c.vision.layers);
  const std::string strategy = s.text("vision_feature_select_strategy", "default");
  if (strategy != "default" && strategy != "full")
    s.refuse("vision_feature_select_strategy", "\"default\" and \"full\" are supported");
  c.drop_class_token = strategy == "default";
  if (c.positions_per_image() < 1) s.refuse("vision_feature_select_strategy", "leaves no position of an image");
  const std::string preprocessor = folder + "/preprocessor_config.json";
  if (std::filesystem::exists(preprocessor)) read_preprocessor(preprocessor, c.vision);
  return c;
}

}  // namespace mm::model
