// SPDX-License-Identifier: Apache-2.0
// config.json of a Hugging Face folder as values. Unsupported values are usage Errors that name file, key and value.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "trainer/data/sample.h"

namespace mm::model {

enum class Activation { gelu, gelu_tanh, quick_gelu };

struct VisionConfig {
  bool clip = false;  // clip_vision_model: class token, pre-layernorm, no patch bias; else siglip_vision_model
  bool head = false;  // siglip_vision_model with its pooling head on disk; a VLM's loss never reaches it
  int hidden = 0, intermediate = 0, layers = 0, heads = 0, image_size = 0, patch = 0;
  Activation activation = Activation::gelu_tanh;
  double eps = 1e-6;
  // (value / 255 - mean) / deviation, by channel; preprocessor_config.json where there is one
  std::array<double, 3> mean{0.5, 0.5, 0.5}, deviation{0.5, 0.5, 0.5};

  int patches() const { return (image_size / patch) * (image_size / patch); }
  int positions() const { return patches() + (clip ? 1 : 0); }
};
struct TextConfig {
  bool qwen2 = false;  // bias on q, k and v, never on o
  int vocabulary = 0, hidden = 0, intermediate = 0, layers = 0, heads = 0, kv_heads = 0;
  int64_t max_positions = 0;  // 0: not stated
  double eps = 1e-6, rope_theta = 10000.0;
  bool attention_bias = false, tied = false;

  int head_size() const { return hidden / heads; }
};
struct VlmConfig {
  VisionConfig vision;
  TextConfig text;
  int image_token = 3;
  int vision_layers = 0;          // layers of the tower that are used, from vision_feature_layer
  bool drop_class_token = false;  // vision_feature_select_strategy "default": without the first position

  int positions_per_image() const;
  // The lower of max_length (0: not stated) and the model's own limit.
  data::SequenceRule sequence_rule(int64_t max_length) const;
};

VlmConfig load_config(const std::string& folder);

}  // namespace mm::model
