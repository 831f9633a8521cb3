// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/model/harness.h"

#include <unistd.h>

#include <cmath>
#include <fstream>

namespace mm::test {

ScratchFolder::ScratchFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "mm-model-test-XXXXXX").string();
  if (!mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp " + pattern);
  path_ = pattern;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

model::VlmConfig config_of(const std::string& config_json) {
  ScratchFolder folder;
  std::ofstream(folder.path() + "/config.json") << config_json;
  return model::load_config(folder.path());
}

std::string small_config(bool clip, int layers) {
  const std::string vision =
      clip ? R"("model_type":"clip_vision_model","hidden_act":"quick_gelu")"
           : R"("model_type":"siglip_vision_model","hidden_act":"gelu_pytorch_tanh","vision_use_head":false)";
  return R"({"model_type":"llava","image_token_index":3,"vision_feature_layer":)" + std::string(clip ? "-2" : "-1") +
         R"(,"vision_feature_select_strategy":)" + (clip ? R"("default")" : R"("full")") + R"(,"vision_config":{)" + vision +
         R"(,"hidden_size":6,"intermediate_size":10,"num_hidden_layers":2,"num_attention_heads":2,"image_size":4,"patch_size":2},)" +
         R"("text_config":{"model_type":)" + (clip ? R"("qwen2")" : R"("llama")") +
         R"(,"vocab_size":20,"hidden_size":8,"intermediate_size":12,"num_hidden_layers":)" + std::to_string(layers) +
         R"(,"num_attention_heads":4,"num_key_value_heads":2,)" + R"("tie_word_embeddings":)" + (clip ? "true" : "false") +
         "}}";
}

data::Image picture(uint64_t seed) {
  data::Image image{.width = 4, .height = 4, .rgb = std::vector<uint8_t>(48)};
  for (size_t i = 0; i < 48; ++i) image.rgb[i] = static_cast<uint8_t>(fixture::hash("pixels", seed, i));
  return image;
}

data::Sample sample(const std::vector<int32_t>& text, uint64_t seed) {
  data::Sample s;
  s.key = "sample" + std::to_string(seed);
  for (int32_t id : text) {
    s.ids.insert(s.ids.end(), id == 3 ? 4 : 1, id);
    if (id == 3) s.images.push_back(picture(seed++));
  }
  s.labels.assign(s.ids.size(), data::no_label);
  for (size_t i = 0; i + 1 < s.ids.size(); ++i)
    if (s.ids[i + 1] != 3) s.labels[i] = s.ids[i + 1];
  return s;
}

std::vector<data::Sample> mixed_batch() {
  return {sample({1, 3, 5, 6, 2}, 1), sample({1, 7, 3, 8, 3, 9, 2}, 10), sample({1, 12, 13, 2}, 20), sample({3, 4, 5, 3}, 30)};
}

void put_slice(const model::ParamSpec& spec, const model::LocalParam& local, const double* slice, std::vector<double>& whole) {
  std::vector<double> numbers(static_cast<size_t>(spec.size())), places(static_cast<size_t>(local.size));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i);
  model::take_slice(spec, local, numbers.data(), places.data());
  whole.resize(numbers.size(), std::nan(""));
  for (size_t i = 0; i < places.size(); ++i) whole[static_cast<size_t>(places[i])] = slice[i];
}

}  // namespace mm::test
