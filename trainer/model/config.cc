// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/config.h"

#include "common/error.h"
#include "trainer/model/json_section.h"

namespace mm::model {
namespace {

TextConfig text(const JsonSection& s) {
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
int used_layers(const JsonSection& s, int layers) {
  const int64_t index = s.integer("vision_feature_layer", -2);
  const int64_t used = index < 0 ? layers + 1 + index : index;
  if (used < 0 || used > layers) s.refuse("vision_feature_layer", "the tower has " + std::to_string(layers) + " layers");
  return static_cast<int>(used);
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
  const nlohmann::json root = parse_json_file(path);
  const JsonSection s(root, path, "");
  s.only("model_type", "llava", "");
  s.only("projector_hidden_act", "gelu", "gelu");
  s.only("multimodal_projector_bias", true);
  VlmConfig c;
  c.vision = read_vision(s.section("vision_config"));
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
  read_preprocessor(folder, c.vision);
  return c;
}

}  // namespace mm::model
