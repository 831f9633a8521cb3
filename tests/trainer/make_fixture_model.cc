// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tests/trainer/make_fixture.h"
#include "trainer/model/dual_tower_config.h"
#include "trainer/model/vlm.h"

namespace mm::fixture {
namespace {

struct Preset {
  const char* name;
  const char* vision;  // the keys that differ
  const char* text;
  const char* features;
};

constexpr const char* siglip =
    R"("model_type":"siglip_vision_model","hidden_act":"gelu_pytorch_tanh","layer_norm_eps":1e-6,"vision_use_head":false)";
constexpr const char* clip = R"("model_type":"clip_vision_model","hidden_act":"quick_gelu","layer_norm_eps":1e-5)";
constexpr const char* llama =
    R"("model_type":"llama","num_key_value_heads":6,"attention_bias":false,"tie_word_embeddings":false)";
constexpr const char* last = R"("vision_feature_layer":-1,"vision_feature_select_strategy":"full")";

constexpr Preset all[] = {
    {"tiny", siglip, llama, last},
    {"gqa", siglip, R"("model_type":"llama","num_key_value_heads":2,"attention_bias":true,"tie_word_embeddings":false)", last},
    {"qwen2", siglip, R"("model_type":"qwen2","num_key_value_heads":3,"tie_word_embeddings":false)", last},
    {"tied", siglip, R"("model_type":"llama","num_key_value_heads":6,"attention_bias":false,"tie_word_embeddings":true)", last},
    {"clip", clip, llama, R"("vision_feature_layer":-2,"vision_feature_select_strategy":"default")"},
};

uint64_t mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93;
  return x ^ (x >> 32);
}

}  // namespace

std::vector<std::string> presets() {
  std::vector<std::string> names;
  for (const Preset& p : all) names.push_back(p.name);
  return names;
}

constexpr const char* pairs_json =
    R"({"model_type":"clip","projection_dim":48,"logit_scale_init_value":2.6592,"vision_config":{"model_type":"clip_vision_model",)"
    R"("hidden_size":64,"intermediate_size":160,"num_hidden_layers":2,"num_attention_heads":4,"image_size":32,"patch_size":8,)"
    R"("hidden_act":"quick_gelu","layer_norm_eps":1e-5},"text_config":{"model_type":"clip_text_model","vocab_size":264,)"
    R"("hidden_size":64,"intermediate_size":160,"num_hidden_layers":2,"num_attention_heads":4,"max_position_embeddings":64,)"
    R"("hidden_act":"quick_gelu","layer_norm_eps":1e-5,"bos_token_id":1,"eos_token_id":2}})"
    "\n";

// As deep as tiny, and with heads that tensor parallelism cannot deal out evenly.
constexpr const char* narrow_json =
    R"({"model_type":"llava","image_token_index":3,"vision_feature_layer":-1,"vision_feature_select_strategy":"full","vision_config":)"
    R"({"hidden_size":24,"intermediate_size":40,"num_hidden_layers":2,"num_attention_heads":4,"image_size":32,"patch_size":16,)"
    R"("model_type":"siglip_vision_model","hidden_act":"gelu_pytorch_tanh","layer_norm_eps":1e-6,"vision_use_head":false},"text_config":)"
    R"({"vocab_size":264,"hidden_size":36,"intermediate_size":52,"num_hidden_layers":4,"num_attention_heads":6,"rms_norm_eps":1e-6,)"
    R"("rope_theta":10000.0,"model_type":"llama","num_key_value_heads":3,"attention_bias":false,"tie_word_embeddings":false}})"
    "\n";

std::string config_json(const std::string& preset) {
  if (preset == "pairs") return pairs_json;
  if (preset == "narrow") return narrow_json;
  const auto* p = std::find_if(std::begin(all), std::end(all), [&](const Preset& x) { return x.name == preset; });
  if (p == std::end(all)) throw std::invalid_argument("make-fixture: " + preset + ": no such preset");
  return std::string(R"({"model_type":"llava","image_token_index":3,)") + p->features +
         R"(,"vision_config":{"hidden_size":64,"intermediate_size":160,"num_hidden_layers":2,"num_attention_heads":4,)" +
         R"("image_size":32,"patch_size":8,)" + p->vision +
         R"(},"text_config":{"vocab_size":264,"hidden_size":96,"intermediate_size":256,"num_hidden_layers":4,)" +
         R"("num_attention_heads":6,"rms_norm_eps":1e-6,"rope_theta":10000.0,)" + p->text + "}}\n";
}

uint64_t hash(const std::string& name, uint64_t stream, uint64_t index) {
  uint64_t h = mix(stream + 0x9e3779b97f4a7c15);
  for (unsigned char c : name) h = mix(h ^ c);
  return mix(h + (index + 1) * 0x9e3779b97f4a7c15);
}

double weight(const model::ParamSpec& spec, int64_t index) {
  // 21 bits in [-1, 1)
  const double u =
      static_cast<double>(static_cast<int64_t>(hash(spec.name, 0, static_cast<uint64_t>(index)) >> 43)) * 0x1p-20 - 1;
  const bool is_weight = spec.name.ends_with(".weight");
  if (is_weight && spec.name.find("norm") != std::string::npos) return 1 + u / 8;
  if (spec.name.ends_with(".bias")) return u / 32;
  const int64_t fan_in = spec.shape.size() > 1 ? spec.size() / spec.shape[0] : spec.size();
  int64_t power = 1;  // the least power of two whose square is at least fan_in
  while (power * power < fan_in) power *= 2;
  return 1.75 * u / static_cast<double>(power);
}

void write_model(const std::string& folder, const std::string& preset) {
  static_assert(std::endian::native == std::endian::little);
  std::filesystem::create_directories(folder);
  std::ofstream config(folder + "/config.json");
  config << config_json(preset);
  config.close();
  if (!config) throw std::runtime_error("make-fixture: write " + folder + "/config.json");

  model::ParamStore<float> store(model::is_dual_tower(folder) ? model::param_specs(model::load_dual_tower_config(folder))
                                                              : model::param_specs(model::load_config(folder)));
  fill(store);
  std::string header = "{";
  int64_t at = 0;
  for (size_t i = 0; i < store.specs().size(); ++i) {
    std::string shape;
    for (int64_t extent : store.specs()[i].shape) shape += (shape.empty() ? "" : ",") + std::to_string(extent);
    const int64_t end = at + store.specs()[i].size();
    header += (i ? ",\"" : "\"") + store.specs()[i].name + R"(":{"dtype":"F32","shape":[)" + shape + R"(],"data_offsets":[)" +
              std::to_string(4 * at) + "," + std::to_string(4 * end) + "]}";
    at = end;
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  std::ofstream out(folder + "/model.safetensors", std::ios::binary);
  const uint64_t length = header.size();
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out << header;
  for (size_t i = 0; i < store.specs().size(); ++i)
    out.write(reinterpret_cast<const char*>(store.value(i)), 4 * store.specs()[i].size());
  out.close();
  if (!out) throw std::runtime_error("make-fixture: write " + folder + "/model.safetensors");
}

}  // namespace mm::fixture
