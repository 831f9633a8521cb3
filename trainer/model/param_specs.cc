// SPDX-License-Identifier: Apache-2.0
// The names are those on disk of Hugging Face's LlavaForConditionalGeneration and CLIPModel, `pre_layrnorm`
// included.
#include "trainer/model/dual_tower_config.h"
#include "trainer/model/vlm.h"

namespace mm::model {
namespace {

using Init = ParamSpec::Init;

// Tensor parallelism cuts what `out` features a projection makes, or what `in` features it sums over (its bias stays whole).
Cut out_of(int64_t parts, int64_t group = 1) {
  return {0, parts, group};
}
Cut in_of(int64_t parts) {
  return {1, parts, 1};
}

struct Builder {
  std::vector<ParamSpec> specs;
  std::string unit = "";
  bool reached = true;

  void add(const std::string& name, std::vector<int64_t> shape, Init init = Init::normal, Cut cut = {}) {
    specs.push_back({.name = name, .shape = std::move(shape), .reached = reached, .init = init, .unit = unit, .cut = cut});
  }
  void value(const std::string& name, std::vector<int64_t> shape, double value) {
    add(name, std::move(shape), Init::value);
    specs.back().init_value = value;
  }
  void linear(const std::string& name, int64_t out, int64_t in, bool bias, Cut cut = {}) {
    add(name + ".weight", {out, in}, Init::normal, cut);
    if (bias) add(name + ".bias", {out}, Init::zeros, cut.axis == 0 ? cut : Cut{});
  }
  void layer_norm(const std::string& name, int64_t size) {
    add(name + ".weight", {size}, Init::ones);
    add(name + ".bias", {size}, Init::zeros);
  }
};

void encoder_layers(Builder& b, const std::string& name, const std::string& unit, int64_t hidden, int64_t intermediate,
                    int heads, int layers, int reached) {
  for (int i = 0; i < layers; ++i) {
    b.reached = i < reached;
    b.unit = unit + "." + std::to_string(i);
    const std::string layer = name + "encoder.layers." + std::to_string(i) + ".";
    for (const char* projection : {"q_proj", "k_proj", "v_proj"})
      b.linear(layer + "self_attn." + projection, hidden, hidden, true, out_of(heads));
    b.linear(layer + "self_attn.out_proj", hidden, hidden, true, in_of(heads));
    b.layer_norm(layer + "layer_norm1", hidden);
    b.layer_norm(layer + "layer_norm2", hidden);
    b.linear(layer + "mlp.fc1", intermediate, hidden, true, out_of(intermediate));
    b.linear(layer + "mlp.fc2", hidden, intermediate, true, in_of(intermediate));
  }
  b.reached = true;
}

// Up to its layers; `reached` of these count.
void vision_tower(Builder& b, const VisionConfig& v, const std::string& tower, int reached) {
  const std::string embeddings = tower + "embeddings.";
  b.unit = "vision.embed";
  b.add(embeddings + "patch_embedding.weight", {v.hidden, 3, v.patch, v.patch});
  if (v.clip) {
    b.add(embeddings + "class_embedding", {v.hidden});
    b.layer_norm(tower + "pre_layrnorm", v.hidden);
  } else {
    b.add(embeddings + "patch_embedding.bias", {v.hidden}, Init::zeros);
  }
  b.add(embeddings + "position_embedding.weight", {v.positions(), v.hidden});
  encoder_layers(b, tower, "vision", v.hidden, v.intermediate, v.heads, v.layers, reached);
}

// What a tower has after its layers, which a language model does not look at.
void unused_vision_head(Builder& b, const VisionConfig& v, const std::string& tower) {
  b.reached = false;
  b.unit = "vision.unused";
  b.layer_norm(tower + "post_layernorm", v.hidden);
  if (v.head) {
    const std::string head = tower + "head.";
    b.add(head + "probe", {1, 1, v.hidden});
    b.add(head + "attention.in_proj_weight", {3 * int64_t{v.hidden}, v.hidden});
    b.add(head + "attention.in_proj_bias", {3 * int64_t{v.hidden}}, Init::zeros);
    b.linear(head + "attention.out_proj", v.hidden, v.hidden, true);
    b.layer_norm(head + "layernorm", v.hidden);
    b.linear(head + "mlp.fc1", v.intermediate, v.hidden, true);
    b.linear(head + "mlp.fc2", v.hidden, v.intermediate, true);
  }
  b.reached = true;
}

void decoder(Builder& b, const TextConfig& t) {
  const std::string model = "language_model.model.";
  const int64_t kv = int64_t{t.head_size()} * t.kv_heads;
  b.unit = "embed";
  b.add(model + "embed_tokens.weight", {t.vocabulary, t.hidden}, Init::normal, out_of(t.vocabulary));
  const Cut heads = out_of(t.heads), kv_heads = out_of(t.heads, t.heads / t.kv_heads), inner = out_of(t.intermediate);
  for (int i = 0; i < t.layers; ++i) {
    b.unit = "text." + std::to_string(i);
    const std::string layer = model + "layers." + std::to_string(i) + ".";
    b.linear(layer + "self_attn.q_proj", t.hidden, t.hidden, t.attention_bias || t.qwen2, heads);
    b.linear(layer + "self_attn.k_proj", kv, t.hidden, t.attention_bias || t.qwen2, kv_heads);
    b.linear(layer + "self_attn.v_proj", kv, t.hidden, t.attention_bias || t.qwen2, kv_heads);
    b.linear(layer + "self_attn.o_proj", t.hidden, t.hidden, t.attention_bias, in_of(t.heads));
    b.linear(layer + "mlp.gate_proj", t.intermediate, t.hidden, false, inner);
    b.linear(layer + "mlp.up_proj", t.intermediate, t.hidden, false, inner);
    b.linear(layer + "mlp.down_proj", t.hidden, t.intermediate, false, in_of(t.intermediate));
    b.add(layer + "input_layernorm.weight", {t.hidden}, Init::ones);
    b.add(layer + "post_attention_layernorm.weight", {t.hidden}, Init::ones);
  }
  b.unit = "head";
  b.add(model + "norm.weight", {t.hidden}, Init::ones);
  if (!t.tied) b.linear("language_model.lm_head", t.vocabulary, t.hidden, false, out_of(t.vocabulary));
}

}  // namespace

std::vector<ParamSpec> param_specs(const VlmConfig& config) {
  Builder b;
  const std::string tower = "vision_tower.vision_model.";
  vision_tower(b, config.vision, tower, config.vision_layers);
  unused_vision_head(b, config.vision, tower);
  b.unit = "projector";
  b.linear("multi_modal_projector.linear_1", config.text.hidden, config.vision.hidden, true);
  b.linear("multi_modal_projector.linear_2", config.text.hidden, config.text.hidden, true);
  decoder(b, config.text);
  return std::move(b.specs);
}

std::vector<ParamSpec> param_specs(const DualTowerConfig& config) {
  const DualTowerConfig::Text& t = config.text;
  const std::string embeddings = "text_model.embeddings.";
  Builder b;
  vision_tower(b, config.vision, "vision_model.", config.vision.layers);
  b.unit = "text.embed";
  b.add(embeddings + "token_embedding.weight", {t.vocabulary, t.hidden});
  b.add(embeddings + "position_embedding.weight", {t.max_positions, t.hidden});
  encoder_layers(b, "text_model.", "text", t.hidden, t.intermediate, t.heads, t.layers, t.layers);
  b.unit = "pairs";
  b.layer_norm("vision_model.post_layernorm", config.vision.hidden);
  b.layer_norm("text_model.final_layer_norm", t.hidden);
  b.linear("visual_projection", config.projection, config.vision.hidden, false);
  b.linear("text_projection", config.projection, t.hidden, false);
  b.value("logit_scale", {}, config.logit_scale);
  if (config.sigmoid) b.value("logit_bias", {1}, config.logit_bias);
  return std::move(b.specs);
}

}  // namespace mm::model
