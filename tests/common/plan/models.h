// SPDX-License-Identifier: Apache-2.0
// Published models as values.
#pragma once

#include "common/plan/model.h"

namespace mm::plan {

inline Layers llama_layers(int64_t count, int64_t hidden, int64_t intermediate, int64_t heads, int64_t kv_heads) {
  return {.count = count, .hidden = hidden, .intermediate = intermediate, .heads = heads, .kv_heads = kv_heads, .head_size = hidden / heads,
          .gated = true, .causal = true};
}
inline Layers encoder_layers(int64_t count, int64_t hidden, int64_t intermediate, int64_t heads) {
  return {.count = count, .hidden = hidden, .intermediate = intermediate, .heads = heads, .kv_heads = heads, .head_size = hidden / heads,
          .norm_bias = true, .qkv_bias = true, .out_bias = true, .mlp_bias = true};
}
inline Model decoder(const Layers& layers, int64_t vocabulary, bool tied = false) {
  Model m;
  m.text = layers;
  m.vocabulary = vocabulary;
  m.tied = tied;
  return m;
}
// GPT-3's layers: two products in the MLP, biases, LayerNorm.
inline Model gpt(int64_t count, int64_t hidden, int64_t heads, int64_t vocabulary) {
  Layers l = encoder_layers(count, hidden, 4 * hidden, heads);
  l.causal = true;
  Model m = decoder(l, vocabulary, true);
  m.text_positions = 2048;
  return m;
}
inline void add_tower(Model& m, const Layers& vision, int64_t side, int64_t patch, bool clip, int64_t used) {
  m.kind = Model::Kind::vlm;
  m.vision = vision;
  m.patches = (side / patch) * (side / patch);
  m.patch_values = 3 * patch * patch;
  m.class_token = clip;
  m.used_vision_layers = used;
  m.features = m.patches;
}
// LLaVA 1.5: CLIP ViT-L/14 at 336, feature layer -2, and Vicuna.
inline Model llava_7b() {
  Model m = decoder(llama_layers(32, 4096, 11008, 32, 32), 32064);
  add_tower(m, encoder_layers(24, 1024, 4096, 16), 336, 14, true, 23);
  return m;
}
inline Model clip_model(const Layers& vision, int64_t side, int64_t patch, const Layers& text, int64_t projection) {
  Model m = decoder(text, 49408);
  add_tower(m, vision, side, patch, true, vision.count);
  m.kind = Model::Kind::dual_tower;
  m.text.causal = true;
  m.text_positions = 77;
  m.projection = projection;
  return m;
}

}  // namespace mm::plan
