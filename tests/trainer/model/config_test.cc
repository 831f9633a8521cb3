// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/config.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "tests/trainer/model/harness.h"

namespace mm {
namespace {

using nlohmann::json;

// The message for the tiny configuration with one value changed (null: removed).
std::string refusal(const std::string& pointer, const json& value) {
  json config = json::parse(fixture::config_json("tiny"));
  config[json::json_pointer(pointer)] = value;
  const test::ScratchFolder folder;
  std::ofstream(folder.path() + "/config.json") << config;
  try {
    model::load_config(folder.path());
  } catch (const Error& e) {
    EXPECT_EQ(e.status, exit_status::usage);
    const std::string prefix = "model: " + folder.path() + "/config.json: ", message = e.what();
    EXPECT_TRUE(message.starts_with(prefix)) << message;
    return message.substr(std::min(prefix.size(), message.size()));
  }
  return "accepted";
}

TEST(Config, RefusesWhatIsNotSupportedWithKeyAndValue) {
  EXPECT_EQ(refusal("/model_type", "clip"), R"(model_type = "clip": only "llava" is supported)");
  EXPECT_EQ(refusal("/text_config/model_type", "mistral"),
            R"(text_config.model_type = "mistral": llama and qwen2 are supported)");
  EXPECT_EQ(refusal("/text_config/num_key_value_heads", 4),
            "text_config.num_key_value_heads = 4: does not divide num_attention_heads 6");
  EXPECT_EQ(refusal("/text_config/num_attention_heads", 5),
            "text_config.num_attention_heads = 5: does not divide hidden_size 96");
  EXPECT_EQ(refusal("/text_config/rope_scaling", {{"factor", 2}}), R"(text_config.rope_scaling = {"factor":2}: not supported)");
  EXPECT_EQ(refusal("/text_config/hidden_act", "relu"), R"(text_config.hidden_act = "relu": only "silu" is supported)");
  EXPECT_EQ(refusal("/text_config/vocab_size", 0), "text_config.vocab_size = 0: a positive number is needed");
  EXPECT_EQ(refusal("/text_config/vocab_size", "many"), R"(text_config.vocab_size = "many": an integer is needed)");
  EXPECT_EQ(refusal("/vision_config/hidden_act", "relu"),
            R"(vision_config.hidden_act = "relu": gelu, gelu_pytorch_tanh and quick_gelu are supported)");
  EXPECT_EQ(refusal("/vision_config/patch_size", 64), "vision_config.patch_size = 64: above image_size 32");
  EXPECT_EQ(refusal("/vision_feature_layer", -4), "vision_feature_layer = -4: the tower has 2 layers");
  EXPECT_EQ(refusal("/vision_feature_layer", json::array({-1, -2})), "vision_feature_layer = [-1,-2]: an integer is needed");
  EXPECT_EQ(refusal("/image_token_index", 264), "image_token_index = 264: the vocabulary has 264");
  EXPECT_EQ(refusal("/vision_config", nullptr), "vision_config = null: an object is needed");
  EXPECT_EQ(refusal("/text_config/rope_theta", 1e6), "accepted");
}

TEST(Config, NotJsonAndNoFile) {
  const test::ScratchFolder folder;
  try {
    model::load_config(folder.path());
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(folder.path() + "/config.json"), std::string::npos) << e.what();
  }
  std::ofstream(folder.path() + "/config.json") << "{\"model_type\": ";
  EXPECT_THROW(model::load_config(folder.path()), Error);
}

TEST(Config, TakesHuggingFacesDefaultsAndThePreprocessorsColours) {
  const test::ScratchFolder folder;
  std::ofstream(folder.path() + "/config.json")
      << R"({"model_type":"llava","vision_config":{"model_type":"clip_vision_model"},"text_config":{"model_type":"llama","vocab_size":32064}})";
  std::ofstream(folder.path() + "/preprocessor_config.json") << R"({"image_mean":[0.1,0.2,0.3],"image_std":[1,2,4]})";
  const model::VlmConfig c = model::load_config(folder.path());
  EXPECT_EQ(c.vision.patch, 32);
  EXPECT_EQ(c.vision_layers, 11);
  EXPECT_TRUE(c.drop_class_token);
  EXPECT_EQ(c.positions_per_image(), 49);
  EXPECT_EQ(c.image_token, 32000);
  EXPECT_EQ(c.text.kv_heads, 32);
  EXPECT_EQ(c.vision.mean[1], 0.2);
  EXPECT_EQ(c.vision.deviation[2], 4);
}

TEST(Config, SequenceRuleTakesTheLowerLimit) {
  model::VlmConfig c = test::config_of(fixture::config_json("tiny"));
  EXPECT_EQ(c.sequence_rule(0).max_length, 0);
  EXPECT_EQ(c.sequence_rule(100).max_length, 100);
  EXPECT_EQ(c.sequence_rule(100).positions_per_image, 16);
  c.text.max_positions = 64;
  EXPECT_EQ(c.sequence_rule(0).max_length, 64);
  EXPECT_EQ(c.sequence_rule(100).max_length, 64);
  EXPECT_EQ(c.sequence_rule(50).max_length, 50);
}

TEST(Params, FreezeMarksWhatMatchesAndRefusesWhatDoesNot) {
  std::vector<model::ParamSpec> specs = model::param_specs(test::config_of(fixture::config_json("tiny")));
  model::freeze(specs, {"vision_tower.*", "*.lm_head.weight"});
  for (const model::ParamSpec& spec : specs)
    EXPECT_EQ(spec.frozen, spec.name.starts_with("vision_tower.") || spec.name == "language_model.lm_head.weight") << spec.name;
  try {
    model::freeze(specs, {"vision_towers.*"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, exit_status::usage);
    EXPECT_STREQ(e.what(), "model.freeze: vision_towers.*: matches no parameter of the model");
  }
}

TEST(Params, InitialValuesDependOnSeedAndNameAlone) {
  const model::VlmConfig tiny = test::config_of(fixture::config_json("tiny"));
  model::ParamStore<double> a(model::param_specs(tiny)), other(a.specs());
  model::ParamStore<float> narrow(a.specs());
  model::ParamStore<double> alone({a.specs()[a.index("language_model.model.embed_tokens.weight")]});
  model::initialise(a, 5);
  model::initialise(other, 6);
  model::initialise(narrow, 5);
  model::initialise(alone, 5);
  const double* embedding = a.value(a.index("language_model.model.embed_tokens.weight"));
  EXPECT_TRUE(std::equal(alone.values(), alone.values() + alone.specs()[0].size(), embedding));
  for (size_t i = 0; i < a.specs().size(); ++i)
    for (int64_t j = 0; j < a.specs()[i].size(); ++j) ASSERT_EQ(narrow.value(i)[j], static_cast<float>(a.value(i)[j]));
  EXPECT_NE(embedding[0], other.value(other.index("language_model.model.embed_tokens.weight"))[0]);
  double mean = 0, squares = 0;
  for (int64_t i = 0; i < alone.specs()[0].size(); ++i) {
    mean += embedding[i];
    squares += embedding[i] * embedding[i];
  }
  const double n = static_cast<double>(alone.specs()[0].size());
  EXPECT_NEAR(mean / n, 0, 4 / std::sqrt(96 * n));
  EXPECT_NEAR(squares / n, 1.0 / 96, 0.05 / 96);
  EXPECT_EQ(a.value(a.index("language_model.model.norm.weight"))[3], 1);
  EXPECT_EQ(a.value(a.index("multi_modal_projector.linear_1.bias"))[3], 0);
}

}  // namespace
}  // namespace mm
