// SPDX-License-Identifier: Apache-2.0
// The names are those on disk of Hugging Face's LlavaForConditionalGeneration, `pre_layrnorm` included.
#include "trainer/model/vlm.h"

namespace mm::model {
namespace {

using Init = ParamSpec::Init;

struct Builder {
  std::vector<ParamSpec> specs;
  bool reached = true;

  void add(const std::string& name, std::vector<int64_t> shape, Init init = Init::normal) {
    specs.push_back({.name = name, .shape = std::move(shape), .reached = reached, .init = init});
  }
  void linear(const std::string& name, int64_t out, int64_t in, bool bias) {
    add(name + ".weight", {out, in});
    if (bias) add(name + ".bias", {out}, Init::zeros);
  }
  void layer_norm(const std::string& name, int64_t size) {
    add(name + ".weight", {size}, Init::ones);
    add(name + ".bias", {size}, Init::zeros);
  }
};

void vision_tower(Builder& b, const VlmConfig& c) {
  const VisionConfig& v = c.vision;
  const std::string tower = "vision_tower.vision_model.", embeddings = tower + "embeddings.";
  b.add(embeddings + "patch_embedding.weight", {v.hidden, 3, v.patch, v.patch});
  if (v.clip) {
    b.add(embeddings + "class_embedding", {v.hidden});
    b.layer_norm(tower + "pre_layrnorm", v.hidden);
  } else {
    b.add(embeddings + "patch_embedding.bias", {v.hidden}, Init::zeros);
  }
  b.add(embeddings + "position_embedding.weight", {v.positions(), v.hidden});
  for (int i = 0; i < v.layers; ++i) {
    b.reached = i < c.vision_layers;
    const std::string layer = tower + "encoder.layers." + std::to_string(i) + ".";
    for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"})
      b.linear(layer + "self_attn." + name, v.hidden, v.hidden, true);
    b.layer_norm(layer + "layer_norm1", v.hidden);
    b.layer_norm(layer + "layer_norm2", v.hidden);
    b.linear(layer + "mlp.fc1", v.intermediate, v.hidden, true);
    b.linear(layer + "mlp.fc2", v.hidden, v.intermediate, true);
  }
  b.reached = false;
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
  b.add(model + "embed_tokens.weight", {t.vocabulary, t.hidden});
  for (int i = 0; i < t.layers; ++i) {
    const std::string layer = model + "layers." + std::to_string(i) + ".";
    b.linear(layer + "self_attn.q_proj", t.hidden, t.hidden, t.attention_bias || t.qwen2);
    b.linear(layer + "self_attn.k_proj", kv, t.hidden, t.attention_bias || t.qwen2);
    b.linear(layer + "self_attn.v_proj", kv, t.hidden, t.attention_bias || t.qwen2);
    b.linear(layer + "self_attn.o_proj", t.hidden, t.hidden, t.attention_bias);
    b.linear(layer + "mlp.gate_proj", t.intermediate, t.hidden, false);
    b.linear(layer + "mlp.up_proj", t.intermediate, t.hidden, false);
    b.linear(layer + "mlp.down_proj", t.hidden, t.intermediate, false);
    b.add(layer + "input_layernorm.weight", {t.hidden}, Init::ones);
    b.add(layer + "post_attention_layernorm.weight", {t.hidden}, Init::ones);
  }
  b.add(model + "norm.weight", {t.hidden}, Init::ones);
  if (!t.tied) b.linear("language_model.lm_head", t.vocabulary, t.hidden, false);
}

}  // namespace

std::vector<ParamSpec> param_specs(const VlmConfig& config) {
  Builder b;
  vision_tower(b, config);
  b.linear("multi_modal_projector.linear_1", config.text.hidden, config.vision.hidden, true);
  b.linear("multi_modal_projector.linear_2", config.text.hidden, config.text.hidden, true);
  decoder(b, config.text);
  return std::move(b.specs);
}

}  // namespace mm::model
