// SPDX-License-Identifier: Apache-2.0
// A small model and a small data set for tests, made with integer arithmetic alone: the same bytes on every machine, so that
// numbers of another implementation on them can be frozen. Weights are dyadic rationals that fit a float; pictures are drawn
// shapes with captions.
//
// Layout as written by `make-fixture DIR`: DIR/model/{config.json,model.safetensors} and DIR/data/shapes-*.tar.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/data/sample.h"
#include "trainer/model/config.h"
#include "trainer/model/param.h"

namespace mm::fixture {

// tiny (SigLIP, Llama), gqa, qwen2, tied (embeddings), clip (class token, vision_feature_layer -2, "default").
std::vector<std::string> presets();
// And "pairs", a contrastive model, and "narrow", for tests with many trainings, which are not among these.
std::string config_json(const std::string& preset);
// Value `index` of the parameter `name`, in [-2, 2], exact in a float.
double weight(const model::ParamSpec& spec, int64_t index);
template <class T>
void fill(model::ParamStore<T>& store) {
  std::vector<T> whole;
  for (size_t i = 0; i < store.specs().size(); ++i) {
    whole.clear();
    for (int64_t j = 0; j < store.specs()[i].size(); ++j) whole.push_back(static_cast<T>(weight(store.specs()[i], j)));
    model::take_slice(store.specs()[i], store.local()[i], whole.data(), store.value(i));
  }
}
// Integer hash of (name, stream, index), for random projections that another program repeats.
uint64_t hash(const std::string& name, uint64_t stream, uint64_t index);
void write_model(const std::string& folder, const std::string& preset);

struct Picture {
  data::Image image;
  std::string caption;
};
Picture draw(int64_t index, int size);
// Samples [first, first + count) as the loader makes them from the shards with the "bytes" tokenizer.
std::vector<data::Sample> samples(const data::SequenceRule& rule, int64_t first, int64_t count);
inline std::vector<data::Sample> samples(const model::VlmConfig& config, int64_t first, int64_t count) {
  return samples(config.sequence_rule(0), first, count);
}
void write_shards(const std::string& folder, int64_t samples, int shards, int image_size);

}  // namespace mm::fixture
