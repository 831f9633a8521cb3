// SPDX-License-Identifier: Apache-2.0
// The model against the reference implementation: frozen numbers, made by tests/trainer/freeze_reference.py, and live where the
// reference and PyTorch are at hand. Each tensor's gradient is held in norm; a gradient that is nothing but rounding (a key's
// bias: the softmax does not see it) against the norm of all.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/files.h"
#include "common/process.h"
#include "tests/trainer/model/frozen.h"
#include "tests/trainer/model/harness.h"
#include "trainer/model/dual_tower.h"

namespace mm {
namespace {

using nlohmann::json;
using test::norm;
using test::TestModel;

class Frozen : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Presets, Frozen, testing::ValuesIn(fixture::presets()), [](const auto& test) { return test.param; });

TEST_P(Frozen, LossAndGradientsEqualTheReference) {
  const json frozen = json::parse(read_file("tests/trainer/fixtures/" + GetParam() + ".json"));
  TestModel<double> m(test::config_of(fixture::config_json(GetParam())));
  const double loss = m.loss_and_gradients(fixture::samples(m.config, 0, frozen["batch"]));
  EXPECT_NEAR(loss, frozen["loss"].get<double>(), 1e-12 * loss);

  test::expect_frozen_gradients(frozen, m.params);
}

TEST_P(Frozen, FloatIsNear) {
  const json frozen = json::parse(read_file("tests/trainer/fixtures/" + GetParam() + ".json"));
  TestModel<float> m(test::config_of(fixture::config_json(GetParam())));
  const double loss = m.loss_and_gradients(fixture::samples(m.config, 0, frozen["batch"]));
  EXPECT_NEAR(loss, frozen["loss"].get<double>(), 1e-5 * loss);
  EXPECT_NEAR(norm(m.params.gradients(), m.params.gradient_elements()) / frozen["steps"][0]["grad_norm"].get<double>(), 1,
              1e-5);
}

struct Tensors {
  std::string content;
  json header;
  explicit Tensors(const std::string& path) : content(read_file(path)) {
    uint64_t length = 0;
    std::memcpy(&length, content.data(), 8);
    header = json::parse(content.substr(8, length));
    content.erase(0, 8 + length);
  }
  template <class From>
  std::vector<double> values(const std::string& name) const {
    const size_t begin = header.at(name)["data_offsets"][0], end = header.at(name)["data_offsets"][1];
    std::vector<From> raw((end - begin) / sizeof(From));
    std::memcpy(raw.data(), content.data() + begin, end - begin);
    return {raw.begin(), raw.end()};
  }
};

struct Variant {
  const char* name;
  std::vector<std::string> settings;
  const char* preset = "vlm-tiny";
};
void PrintTo(const Variant& variant, std::ostream* out) {
  *out << variant.name;
}

class Live : public testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(
    Variants, Live,
    testing::Values(
        Variant{"tiny", {}},
        Variant{"gqa_bias_exact_gelu",
                {"text_config.num_key_value_heads=2", "text_config.attention_bias=true", "vision_config.hidden_act=\"gelu\"",
                 "text_config.rope_theta=500.0"}},
        Variant{"qwen2_tied", {"text_config.model_type=\"qwen2\"", "text_config.tie_word_embeddings=true"}},
        Variant{"clip_inner_layer",
                {"vision_config.model_type=\"clip_vision_model\"", "vision_config.hidden_act=\"quick_gelu\"",
                 "vision_config.layer_norm_eps=1e-5", "vision_feature_layer=-2", "vision_feature_select_strategy=\"default\""}},
        Variant{"clip_embedding_alone", {"vision_config.model_type=\"clip_vision_model\"", "vision_feature_layer=0"}},
        Variant{"pairs_exact_gelu",
                {"vision_config.hidden_act=\"gelu\"", "text_config.hidden_act=\"gelu_pytorch_tanh\"",
                 "text_config.hidden_size=96", "text_config.num_attention_heads=6", "text_config.num_hidden_layers=3",
                 "projection_dim=40", "text_config.layer_norm_eps=1e-3"},
                "clip-tiny"}),
    [](const auto& test) { return std::string(test.param.name); });

// The mean loss of the first samples, with its gradients.
double vlm_loss(const std::string& folder, model::ParamStore<double>& params, tensor::ThreadPool& pool) {
  const model::VlmConfig config = model::load_config(folder);
  model::Vlm<double> model(config, params, pool);
  const std::vector<data::Sample> samples = fixture::samples(config, 0, 8);
  double labels = 0;
  for (const data::Sample& sample : samples)
    for (int32_t label : sample.labels) labels += label != data::no_label;
  const double loss = model.forward(samples) / labels;
  model.backward(1 / labels);
  return loss;
}
double pairs_loss(const std::string& folder, model::ParamStore<double>& params, tensor::ThreadPool& pool) {
  const model::DualTowerConfig config = model::load_dual_tower_config(folder);
  model::DualTower<double> model(config, params, pool);
  model::MicroBatch batch;
  model::pack_pairs(config, fixture::samples(config.sequence_rule(0), 0, 8), batch);
  model.forward(0, batch);
  const double loss = model.loss(1, 1.0 / 8) / 8;
  model.backward(0, batch);
  return loss;
}

TEST_P(Live, LossAndGradientsEqualTheReference) {
  const std::string reference = "../shared/reference/reference.py";
  if (!std::filesystem::exists(reference)) GTEST_SKIP() << "skipped: no " << reference;
  if (!run_command({"/usr/bin/python3", "-c", "import torch, PIL"}, std::chrono::minutes(2)).ok())
    GTEST_SKIP() << "skipped: no python3-torch, python3-pil";
  const test::ScratchFolder folder;
  const std::string data = folder.path() + "/data", model = folder.path() + "/model",
                    out = folder.path() + "/gradients.safetensors";
  fixture::write_shards(data, 8, 1, 32);
  std::vector<std::string> command = {"/usr/bin/python3",
                                      "tests/trainer/freeze_reference.py",
                                      reference,
                                      "gradients",
                                      GetParam().preset,
                                      model,
                                      data,
                                      "8",
                                      out};
  command.insert(command.end(), GetParam().settings.begin(), GetParam().settings.end());
  const CommandResult made = run_command(command, std::chrono::minutes(5), {"OPENBLAS_NUM_THREADS=1"});
  ASSERT_TRUE(made.ok()) << made.err;

  const bool pairs = model::is_dual_tower(model);
  model::ParamStore<double> params(pairs ? model::param_specs(model::load_dual_tower_config(model))
                                         : model::param_specs(model::load_config(model)));
  tensor::ThreadPool pool(1);
  const Tensors weights(model + "/model.safetensors"), expected(out);
  ASSERT_EQ(weights.header.size(), params.specs().size());
  for (size_t i = 0; i < params.specs().size(); ++i) {
    const std::vector<double> values = weights.values<float>(params.specs()[i].name);
    ASSERT_EQ(values.size(), static_cast<size_t>(params.specs()[i].size()));
    std::copy(values.begin(), values.end(), params.value(i));
  }
  const double loss = pairs ? pairs_loss(model, params, pool) : vlm_loss(model, params, pool);
  EXPECT_NEAR(loss, expected.values<double>("loss")[0], 1e-12 * loss);
  const double all = norm(params.gradients(), params.gradient_elements());
  double worst = 0;
  size_t reached = 0;
  for (size_t i = 0; i < params.specs().size(); ++i) {
    const model::ParamSpec& spec = params.specs()[i];
    EXPECT_EQ(spec.reached, expected.header.contains(spec.name)) << spec.name;
    if (!spec.reached) continue;
    ++reached;
    std::vector<double> difference = expected.values<double>(spec.name);
    const double size = norm(difference.data(), spec.size());
    for (size_t j = 0; j < difference.size(); ++j) difference[j] -= params.gradient(i)[j];
    EXPECT_LE(norm(difference.data(), spec.size()), 1e-12 * size + 1e-15 * all) << spec.name << " of norm " << size;
    if (size > 1e-9 * all) worst = std::max(worst, norm(difference.data(), spec.size()) / size);
  }
  EXPECT_EQ(reached + 1, expected.header.size());
  RecordProperty("worst_relative_difference", std::to_string(worst));
  std::printf("largest relative difference of a gradient: %.2g\n", worst);
}

}  // namespace
}  // namespace mm
