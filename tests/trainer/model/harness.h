// SPDX-License-Identifier: Apache-2.0
// What the tests of the model share: a model of a configuration with its store and pool, and scratch folders.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/trainer/make_fixture.h"
#include "trainer/model/vlm.h"

namespace mm::test {

class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

model::VlmConfig config_of(const std::string& config_json);

// Small enough for differences in every parameter: 2,000 or so. Pictures of 4 x 4 in patches of 2. With `clip` a CLIP tower
// whose inner layer is used, Qwen2 and tied embeddings, else SigLIP and Llama.
std::string small_config(bool clip, int layers = 2);
data::Image picture(uint64_t seed);
// `text` holds tokens, 3 where an image stands (it takes four positions); every token is a label of the one before it, but
// images.
data::Sample sample(const std::vector<int32_t>& text, uint64_t seed);
// A picture at the head, two inside, none, one at the end; and text only.
std::vector<data::Sample> mixed_batch();

// Puts what a rank holds into the whole tensor; what nobody puts is NaN.
void put_slice(const model::ParamSpec& spec, const model::LocalParam& local, const double* slice, std::vector<double>& whole);

template <class T>
struct TestModel {
  model::VlmConfig config;
  tensor::ThreadPool pool;
  model::ParamStore<T> params;
  model::Vlm<T> vlm;

  explicit TestModel(const model::VlmConfig& c, int threads = 1, const std::vector<std::string>& frozen = {})
      : config(c), pool(threads), params(specs(c, frozen)), vlm(config, params, pool) {
    fixture::fill(params);
  }
  static std::vector<model::ParamSpec> specs(const model::VlmConfig& c, const std::vector<std::string>& frozen) {
    std::vector<model::ParamSpec> all = model::param_specs(c);
    model::freeze(all, frozen);
    return all;
  }
  std::vector<T> gradients() { return {params.gradients(), params.gradients() + params.gradient_elements()}; }
  // Mean loss over the labels, with its gradients.
  double loss_and_gradients(const std::vector<data::Sample>& batch) {
    int64_t labels = 0;
    for (const data::Sample& sample : batch)
      for (int32_t label : sample.labels) labels += label != data::no_label;
    params.zero_gradients();
    const double loss = vlm.forward(batch) / static_cast<double>(labels);
    vlm.backward(1 / static_cast<double>(labels));
    return loss;
  }
};

}  // namespace mm::test
