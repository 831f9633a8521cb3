// SPDX-License-Identifier: Apache-2.0
// Keys and defaults are those of Hugging Face's configurations.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/files.h"
#include "common/plan/model.h"

namespace mm::plan {
namespace {

using nlohmann::json;

class Section {
 public:
  Section(const json& object, std::string where) : object_(object), where_(std::move(where)) {}
  bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }
  int64_t number(const char* key, int64_t otherwise, int64_t least = 1) const {
    if (!has(key)) return otherwise;
    const json& v = object_.at(key);
    if (!v.is_number_integer() || v.get<int64_t>() < least || v.get<int64_t>() > int64_t{1} << 28)
      throw usage_error(fmt::format("model: {}{} = {}: a number from {} is needed", where_, key, v.dump(), least));
    return v.get<int64_t>();
  }
  bool flag(const char* key, bool otherwise) const { return has(key) && object_.at(key).is_boolean() ? object_.at(key).get<bool>() : otherwise; }
  std::string text(const char* key, const std::string& otherwise) const {
    return has(key) && object_.at(key).is_string() ? object_.at(key).get<std::string>() : otherwise;
  }
  Section section(const char* key) const {
    if (!has(key) || !object_.at(key).is_object()) throw usage_error(fmt::format("model: {}{}: an object is needed", where_, key));
    return {object_.at(key), fmt::format("{}{}.", where_, key)};
  }
  void divides(int64_t part, const char* name, int64_t whole) const {
    if (whole % part != 0) throw usage_error(fmt::format("model: {}{} = {}: does not divide {}", where_, name, part, whole));
  }

 private:
  const json& object_;
  std::string where_;
};

// An encoder of CLIP or SigLIP, of pictures or of text.
Layers encoder(const Section& s, int64_t hidden, int64_t intermediate, int64_t heads) {
  Layers l;
  l.count = s.number("num_hidden_layers", 12);
  l.hidden = s.number("hidden_size", hidden);
  l.intermediate = s.number("intermediate_size", intermediate);
  l.heads = l.kv_heads = s.number("num_attention_heads", heads);
  s.divides(l.heads, "num_attention_heads", l.hidden);
  l.head_size = l.hidden / l.heads;
  l.norm_bias = l.qkv_bias = l.out_bias = l.mlp_bias = true;
  return l;
}

void read_tower(const Section& s, Model& m) {
  const bool clip = s.text("model_type", "clip_vision_model") == "clip_vision_model";
  m.vision = encoder(s, 768, 3072, 12);
  const int64_t side = s.number("image_size", 224), patch = s.number("patch_size", clip ? 32 : 16);
  m.patches = (side / patch) * (side / patch);
  m.patch_values = 3 * patch * patch;
  m.class_token = clip;
  m.vision_head = !clip && s.flag("vision_use_head", true);
  m.used_vision_layers = m.vision.count;
}

void read_decoder(const Section& s, Model& m) {
  const bool qwen2 = s.text("model_type", "llama") == "qwen2";
  Layers& l = m.text;
  l.count = s.number("num_hidden_layers", 32);
  l.hidden = s.number("hidden_size", 4096);
  l.intermediate = s.number("intermediate_size", qwen2 ? 22016 : 11008);
  l.heads = s.number("num_attention_heads", 32);
  l.kv_heads = s.number("num_key_value_heads", l.heads);
  s.divides(l.kv_heads, "num_key_value_heads", l.heads);
  if (!s.has("head_dim")) s.divides(l.heads, "num_attention_heads", l.hidden);
  l.head_size = s.number("head_dim", l.hidden / l.heads);
  l.gated = l.causal = true;
  l.qkv_bias = qwen2 || s.flag("attention_bias", false);
  l.out_bias = !qwen2 && s.flag("attention_bias", false);
  m.vocabulary = s.number("vocab_size", qwen2 ? 151936 : 32000);
  m.tied = s.flag("tie_word_embeddings", false);
  m.max_length = s.number("max_position_embeddings", 0);
}

void read_dual_tower(const Section& s, bool siglip, Model& m) {
  m.kind = Model::Kind::dual_tower;
  read_tower(s.section("vision_config"), m);
  const Section t = s.section("text_config");
  m.text = encoder(t, 512, 2048, 8);
  m.text.causal = !siglip;
  m.vocabulary = t.number("vocab_size", siglip ? 32000 : 49408);
  m.text_positions = m.max_length = t.number("max_position_embeddings", siglip ? 64 : 77);
  m.projection = siglip ? t.number("projection_size", m.text.hidden) : s.number("projection_dim", 512);
  m.projects_both = !siglip;
  m.sigmoid_loss = siglip || s.text("contrastive_loss", "infonce") == "sigmoid";
}

void read_vlm(const Section& s, Model& m) {
  m.kind = Model::Kind::vlm;
  read_tower(s.section("vision_config"), m);
  read_decoder(s.section("text_config"), m);
  const int64_t layers = m.vision.count, index = s.number("vision_feature_layer", -2, -layers - 1);
  m.used_vision_layers = index < 0 ? layers + 1 + index : index;
  if (m.used_vision_layers > layers) throw usage_error(fmt::format("model: vision_feature_layer = {}: the tower has {} layers", index, layers));
  m.features = m.vision_positions() - (s.text("vision_feature_select_strategy", "default") == "default" ? 1 : 0);
}

}  // namespace

Model read_model(const std::string& folder) {
  const std::string path = folder + "/config.json";
  json root;
  try {
    root = json::parse(read_file(path));
  } catch (const json::exception& e) {
    throw usage_error("model: " + path + ": " + e.what());
  }
  if (!root.is_object()) throw usage_error("model: " + path + ": not a JSON object");
  const Section s(root, path + ": ");
  const std::string type = s.text("model_type", "");
  Model m;
  if (type == "llava") {
    read_vlm(s, m);
  } else if (type == "clip" || type == "siglip") {
    read_dual_tower(s, type == "siglip", m);
  } else if (type == "llama" || type == "qwen2" || type == "mistral") {
    read_decoder(s, m);
  } else {
    throw usage_error(fmt::format("model: {}: model_type = \"{}\": known are llava, clip, siglip, llama, qwen2, mistral", path, type));
  }
  return m;
}

}  // namespace mm::plan
