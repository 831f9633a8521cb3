// SPDX-License-Identifier: Apache-2.0
// What the cost of a model depends on, and no more: widths, heads, layers, vocabulary, pictures. Free of the trainer, so that whoever
// places or plans a job can read it from the same Hugging Face folder. Counts are exact; tests hold them against the trainer's parameters.
#pragma once

#include <cstdint>
#include <string>

namespace mm::plan {

// A run of equal transformer layers: two norms, attention with q, k, v and out, and an MLP of two products or, gated, of three.
struct Layers {
  int64_t count = 0, hidden = 0, intermediate = 0, heads = 0, kv_heads = 0, head_size = 0;
  bool gated = false;
  bool norm_bias = false;  // LayerNorm; else RMSNorm
  bool qkv_bias = false, out_bias = false, mlp_bias = false;
  bool causal = false;
};

struct Model {
  // text: a decoder alone. vlm: tower, projector of two products, decoder. dual_tower: two encoders and a contrastive loss.
  enum class Kind { text, vlm, dual_tower } kind = Kind::text;
  Layers vision, text;
  // tower
  int64_t used_vision_layers = 0;  // the loss reaches no later one
  int64_t patches = 0, patch_values = 0;  // of a picture; of a patch: 3 * side^2
  bool class_token = false;               // CLIP: class token, norm before the layers, no bias on patches
  bool vision_head = false;               // SigLIP's pooling head
  int64_t features = 0;                   // positions that a picture takes in the decoder's sequence
  // text
  int64_t vocabulary = 0;
  bool tied = false;
  int64_t text_positions = 0;  // learnt ones; 0: rotary
  int64_t max_length = 0;      // the model's own limit; 0: not stated
  int64_t projection = 0;      // dual_tower: width of the shared space
  bool projects_both = true;   // dual_tower: CLIP's products after both towers; else SigLIP's after the text, with a bias
  bool sigmoid_loss = false;   // dual_tower: SigLIP's, with a bias
  // frozen: no gradient, no moments, no backward of weights
  bool train_vision = true, train_projector = true, train_text = true;

  bool has_vision() const { return kind != Kind::text; }
  int64_t vision_positions() const { return patches + (class_token ? 1 : 0); }
};

// From config.json. Keys that cost nothing are not looked at: the trainer refuses what it cannot train. Throws a usage Error that names
// file and key.
Model read_model(const std::string& folder);

}  // namespace mm::plan
