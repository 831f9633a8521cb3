// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/dual_tower_config.h"

#include "trainer/model/json_section.h"

namespace mm::model {
namespace {

DualTowerConfig::Text read_text(const JsonSection& s) {
  DualTowerConfig::Text t;
  s.only("model_type", "clip_text_model", "clip_text_model");
  t.vocabulary = s.count("vocab_size", 49408);
  t.hidden = s.count("hidden_size", 512);
  t.intermediate = s.count("intermediate_size", 2048);
  t.layers = s.count("num_hidden_layers", 12);
  t.heads = s.count("num_attention_heads", 8);
  t.max_positions = s.count("max_position_embeddings", 77);
  t.activation = read_activation(s, "quick_gelu");
  t.eps = s.positive("layer_norm_eps", 1e-5);
  if (t.hidden % t.heads != 0) s.refuse("num_attention_heads", "does not divide hidden_size " + std::to_string(t.hidden));
  return t;
}

}  // namespace

data::SequenceRule DualTowerConfig::sequence_rule(int64_t max_length) const {
  data::SequenceRule rule;
  rule.image_size = vision.image_size;
  rule.positions_per_image = 0;
  rule.image_token = -1;
  rule.max_length = max_length == 0 || text.max_positions < max_length ? text.max_positions : max_length;
  rule.vocabulary = text.vocabulary;
  return rule;
}

bool is_dual_tower(const std::string& folder) {
  const std::string path = folder + "/config.json";
  const nlohmann::json root = parse_json_file(path);
  return JsonSection(root, path, "").text("model_type", "") == "clip";
}

DualTowerConfig load_dual_tower_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  const nlohmann::json root = parse_json_file(path);
  const JsonSection s(root, path, "");
  s.only("model_type", "clip", "");
  DualTowerConfig c;
  const JsonSection vision = s.section("vision_config");
  vision.only("model_type", "clip_vision_model", "clip_vision_model");
  c.vision = read_vision(vision);
  c.text = read_text(s.section("text_config"));
  c.projection = s.count("projection_dim", 512);
  c.logit_scale = s.number("logit_scale_init_value", 2.6592);
  const std::string loss = s.text("contrastive_loss", "infonce");
  if (loss != "infonce" && loss != "sigmoid") s.refuse("contrastive_loss", "\"infonce\" and \"sigmoid\" are supported");
  c.sigmoid = loss == "sigmoid";
  c.logit_bias = s.number("logit_bias_init_value", -10);
  read_preprocessor(folder, c.vision);
  return c;
}

}  // namespace mm::model
