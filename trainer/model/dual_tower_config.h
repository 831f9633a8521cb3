// SPDX-License-Identifier: Apache-2.0
// config.json of a contrastive model: Hugging Face's CLIPModel. Two keys are ours: "contrastive_loss", "infonce" (the default)
// or "sigmoid" (SigLIP's, which adds a logit_bias), and "logit_bias_init_value".
#pragma once

#include <string>
#include <vector>

#include "trainer/model/config.h"
#include "trainer/model/param.h"

namespace mm::model {

struct DualTowerConfig {
  struct Text {
    int vocabulary = 0, hidden = 0, intermediate = 0, layers = 0, heads = 0, max_positions = 0;
    Activation activation = Activation::quick_gelu;
    double eps = 1e-5;
  };
  VisionConfig vision;
  Text text;
  int projection = 0;
  bool sigmoid = false;
  double logit_scale = 2.6592, logit_bias = -10;  // at the beginning; the scale's logarithm

  // Text alone, with its begin and its end; a picture takes no position.
  data::SequenceRule sequence_rule(int64_t max_length) const;
};

// Whether the folder's model is one of these, by its model_type.
bool is_dual_tower(const std::string& folder);
DualTowerConfig load_dual_tower_config(const std::string& folder);
std::vector<ParamSpec> param_specs(const DualTowerConfig& config);

}  // namespace mm::model
