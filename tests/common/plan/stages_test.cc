// SPDX-License-Identifier: Apache-2.0
#include "common/plan/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "common/error.h"
#include "common/plan/flops.h"
#include "tests/common/plan/models.h"

namespace mm::plan {
namespace {

TEST(Stages, LayersFitTheSpeed) {
  EXPECT_EQ(layers_of_stages(8, {1, 1}, {}), (std::vector<int>{4, 4}));
  EXPECT_EQ(layers_of_stages(9, {1, 2}, {}), (std::vector<int>{3, 6}));
  EXPECT_EQ(layers_of_stages(8, {1, 1}, {4, 0}), (std::vector<int>{2, 6}));
  EXPECT_EQ(layers_of_stages(2, {1, 1}, {100, 0}), (std::vector<int>{1, 1}));
  EXPECT_EQ(layers_of_stages(8, {1, 100}, {}, 2), (std::vector<int>{2, 6}));
  EXPECT_THROW(layers_of_stages(1, {1, 1}, {}), Error);
  EXPECT_THROW(layers_of_stages(3, {1, 1}, {}, 2), Error);
}

// Against all ways to cut.
TEST(Stages, NoOtherCutIsFaster) {
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    const int layers = 3 + static_cast<int>(random() % 10);
    std::vector<double> speed, extra;
    for (int s = 0; s < 3; ++s) {
      speed.push_back(0.25 * (1 + static_cast<double>(random() % 8)));
      extra.push_back(0.5 * static_cast<double>(random() % 6));
    }
    const auto seconds = [&](const std::vector<int>& cut) {
      double most = 0;
      for (size_t s = 0; s < 3; ++s) most = std::max(most, (cut[s] + extra[s]) / speed[s]);
      return most;
    };
    double least = 1e300;
    for (int a = 1; a < layers - 1; ++a)
      for (int b = 1; a + b < layers; ++b) least = std::min(least, seconds({a, b, layers - a - b}));
    EXPECT_LE(seconds(layers_of_stages(layers, speed, extra)), least * (1 + 1e-9)) << "round " << round;
  }
}

TEST(Stages, AlikeOnesAreEvenWhateverTheFirstDoesBesides) {
  EXPECT_TRUE(sized_stages(8, {.pictures = 4, .head = 1}, {{2, 2}, {2, 2}}, true).empty());
  EXPECT_TRUE(sized_stages(8, {}, {}, true).empty());
  // Twice as fast at pictures: four layers' worth of them are two.
  EXPECT_EQ(sized_stages(12, {.pictures = 4, .head = 0}, {{2, 1}, {1, 1}}, true), (std::vector<int>{5, 7}));
  EXPECT_EQ(sized_stages(12, {.pictures = 4, .head = 0}, {{2, 1}, {1, 1}}, false), (std::vector<int>{6, 6}));
  EXPECT_EQ(sized_stages(12, {.pictures = 0, .head = 2}, {{2, 1}, {1, 1}}, true), (std::vector<int>{7, 5}));
}

TEST(Stages, ExtraWorkIsCountedInLayers) {
  Model m = decoder(llama_layers(8, 64, 256, 4, 4), 1000);
  Batch batch{.samples = 8, .images = 1, .length = 128, .labels = 128};
  Parallelism p;
  p.mesh = {1, 1, 1, 2};
  const ExtraWork text = extra_work(m, batch, p);
  EXPECT_EQ(text.pictures, 0);
  // All positions have labels: the last layer saves nothing, and the head is its own operations.
  EXPECT_NEAR(text.head, 128 * head_work(m).total() / layer_work(m.text, 128, true).total().total(), 1e-9);
  add_tower(m, encoder_layers(4, 48, 96, 4), 32, 8, false, 4);
  const ExtraWork both = extra_work(m, batch, p);
  EXPECT_NEAR(both.pictures, (tower_work(m) + projector_work(m)).total() / layer_work(m.text, 128, true).total().total(), 1e-9);
  EXPECT_NEAR(both.head, text.head, 1e-9);
}

TEST(Stages, SpeedsGoThroughAnEnvironment) {
  const std::vector<StageSpeed> speeds = {{1, 1}, {0.5, 0.25}, {1e-3, 2}};
  EXPECT_EQ(parse_stage_speeds(format_stage_speeds(speeds)), speeds);
  for (const char* text : {"", "1", "1:", ":1", "1:1,x:1", "0:1", "-1:1", "nan:1", "inf:1", "1:1:1", "1:1,,1:1", "1e99:1"})
    EXPECT_TRUE(parse_stage_speeds(text).empty()) << text;
}

}  // namespace
}  // namespace mm::plan
