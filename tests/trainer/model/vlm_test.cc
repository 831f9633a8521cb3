// SPDX-License-Identifier: Apache-2.0
// Properties of the whole model: gradients by central differences, bits that threads do not change, sequences that do not see
// each other.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "common/error.h"
#include "tests/trainer/model/harness.h"

namespace mm {
namespace {

using test::mixed_batch;
using test::picture;
using test::sample;
using test::small_config;
using test::TestModel;

class Small : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Towers, Small, testing::Bool(), [](const auto& test) { return test.param ? "clip" : "siglip"; });

TEST_P(Small, GradientsAreDifferencesInEveryParameter) {
  TestModel<double> m(test::config_of(small_config(GetParam())));
  const std::vector<data::Sample> batch = mixed_batch();
  m.loss_and_gradients(batch);
  int64_t labels = 0;
  for (const data::Sample& s : batch)
    for (int32_t label : s.labels) labels += label != data::no_label;
  for (size_t i = 0; i < m.params.specs().size(); ++i) {
    double error = 0, size = 0;
    const double* gradients = m.params.gradient(i);
    for (int64_t j = 0; j < m.params.specs()[i].size(); ++j) {
      double* value = m.params.value(i) + j;
      const double kept = *value, h = 1e-5, gradient = gradients ? gradients[j] : 0;
      *value = kept + h;
      const double above = m.vlm.forward(batch);
      *value = kept - h;
      const double below = m.vlm.forward(batch);
      *value = kept;
      const double difference = (above - below) / (2 * h) / static_cast<double>(labels) - gradient;
      error += difference * difference;
      size += gradient * gradient;
    }
    EXPECT_LE(std::sqrt(error), 1e-7 * std::sqrt(size) + 2e-9) << m.params.specs()[i].name;
    EXPECT_EQ(size > 0, m.params.specs()[i].reached) << m.params.specs()[i].name;
  }
}

// Each sequence alone and all in one micro-batch: the same sum, the same gradients; so nothing leaks between sequences.
TEST_P(Small, Case05PackedSequencesDoNotSeeEachOther) {
  TestModel<double> together(test::config_of(small_config(GetParam()))), apart(together.config);
  const std::vector<data::Sample> batch = mixed_batch();
  const double sum = together.vlm.forward(batch);
  together.vlm.backward(0.5);
  double sum_apart = 0;
  for (const data::Sample& s : batch) {
    sum_apart += apart.vlm.forward({&s, 1});
    apart.vlm.backward(0.5);
  }
  EXPECT_NEAR(sum, sum_apart, 1e-12 * sum);
  for (int64_t i = 0; i < together.params.gradient_elements(); ++i)
    ASSERT_NEAR(together.params.gradients()[i], apart.params.gradients()[i], 1e-12) << i;

  std::vector<data::Sample> changed = batch;
  changed[1].images[0] = picture(77);
  changed[1].ids[1] = 15;
  const double other = together.vlm.forward({changed.data(), 2}) - apart.vlm.forward({changed.data() + 1, 1});
  EXPECT_NEAR(other, apart.vlm.forward({batch.data(), 1}), 1e-12);
}

TEST_P(Small, BatchesWithoutPicturesOrLabels) {
  TestModel<double> m(test::config_of(small_config(GetParam())));
  const data::Sample text = sample({1, 12, 13, 2}, 20);
  EXPECT_GT(m.vlm.forward({&text, 1}), 0);
  m.vlm.backward(1);
  for (size_t i = 0; i < m.params.specs().size(); ++i) {
    const std::string& name = m.params.specs()[i].name;
    if ((!name.starts_with("vision_tower") && !name.starts_with("multi_modal")) || !m.params.gradient(i)) continue;
    for (int64_t j = 0; j < m.params.specs()[i].size(); ++j) ASSERT_EQ(m.params.gradient(i)[j], 0) << name;
  }
  const std::vector<double> before = m.gradients();
  data::Sample unlabelled = sample({1, 3, 5, 2}, 1);
  unlabelled.labels.assign(unlabelled.ids.size(), data::no_label);
  EXPECT_EQ(m.vlm.forward({&unlabelled, 1}), 0);
  m.vlm.backward(1);
  EXPECT_EQ(m.vlm.forward({}), 0);
  m.vlm.backward(1);
  EXPECT_EQ(m.gradients(), before);
  EXPECT_THROW(m.vlm.backward(1), std::logic_error);
}

// The loss of one label is that of the logits that sampling sees.
TEST_P(Small, NextTokenLogitsAreThoseOfTheLoss) {
  TestModel<double> m(test::config_of(small_config(GetParam())));
  data::Sample s = sample({1, 7, 3, 8, 9}, 5);
  s.labels.assign(s.ids.size(), data::no_label);
  s.labels.back() = 11;
  const double loss = m.vlm.forward({&s, 1});
  const std::vector<double> logits = m.vlm.next_token_logits(s);
  ASSERT_EQ(logits.size(), 20u);
  double total = 0;
  for (double logit : logits) total += std::exp(logit);
  EXPECT_NEAR(loss, std::log(total) - logits[11], 1e-13);
}

TEST_P(Small, FrozenParametersGetNothingAndOthersTheSame) {
  TestModel<double> all(test::config_of(small_config(GetParam())));
  all.loss_and_gradients(mixed_batch());
  for (const std::vector<std::string>& frozen :
       {std::vector<std::string>{"vision_tower.*"}, {"language_model.*"}, {"*.bias", "*norm*", "*embed*"}}) {
    TestModel<double> some(all.config, 1, frozen);
    some.loss_and_gradients(mixed_batch());
    for (size_t i = 0; i < all.params.specs().size(); ++i) {
      const model::ParamSpec& spec = some.params.specs()[i];
      ASSERT_EQ(some.params.gradient(i) != nullptr, spec.trained()) << spec.name << " with " << frozen[0];
      for (int64_t j = 0; spec.trained() && j < spec.size(); ++j)
        ASSERT_EQ(some.params.gradient(i)[j], all.params.gradient(i)[j]) << spec.name << " with " << frozen[0];
    }
  }
}

template <class T>
struct ModelBits : testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(ModelBits, Types);

// Three micro-batches of different shapes, as a step has them.
TYPED_TEST(ModelBits, DoNotDependOnTheNumberOfThreads) {
  for (const char* preset : {"tiny", "gqa", "clip"}) {
    std::vector<std::vector<TypeParam>> gradients;
    std::vector<double> losses;
    for (int threads : {1, 2, 3}) {
      TestModel<TypeParam> m(test::config_of(fixture::config_json(preset)), threads);
      double loss = 0;
      for (int64_t first : {0, 9, 12}) {
        loss += m.vlm.forward(fixture::samples(m.config, first, first == 9 ? 3 : 9));
        m.vlm.backward(0.01);
      }
      losses.push_back(loss);
      gradients.push_back(m.gradients());
    }
    EXPECT_EQ(losses[0], losses[1]);
    EXPECT_EQ(losses[0], losses[2]);
    EXPECT_EQ(gradients[0], gradients[1]) << preset;
    EXPECT_EQ(gradients[0], gradients[2]) << preset;
  }
}

TEST(BadSamples, AreNamedWithTheReason) {
  TestModel<double> m(test::config_of(small_config(false)));
  const auto message = [&](const std::function<void(data::Sample&)>& spoil) -> std::string {
    data::Sample s = sample({1, 3, 5, 2}, 8);
    spoil(s);
    try {
      m.vlm.forward({&s, 1});
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(message([](data::Sample& s) { s.ids[5] = 20; }), "model: sample sample8: token 20 is outside the vocabulary");
  EXPECT_EQ(message([](data::Sample& s) { s.labels[5] = -7; }), "model: sample sample8: label -7 is outside the vocabulary");
  EXPECT_EQ(message([](data::Sample& s) { s.images.clear(); }), "model: sample sample8: 4 image positions but 0 images of 4");
  EXPECT_EQ(message([](data::Sample& s) { s.ids[1] = 5; }), "model: sample sample8: 3 image positions but 1 images of 4");
  EXPECT_EQ(message([](data::Sample& s) { s.labels.pop_back(); }), "model: sample sample8: 7 tokens but 6 labels");
  EXPECT_EQ(message([](data::Sample& s) { s.images[0].width = 3; }),
            "model: sample sample8: a picture of 3 x 4 where the tower takes 4 x 4");
}

}  // namespace
}  // namespace mm
