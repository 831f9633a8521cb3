// SPDX-License-Identifier: Apache-2.0
// All layouts compute the same.
#include <cstdlib>

#include "tests/trainer/layouts/harness.h"
#include "tests/trainer/make_fixture.h"
#include "trainer/loop/setup.h"

namespace mm::loop {
namespace {

// dp, tp, cp and pp in {1, 2, 4} with at most 8 ranks, every zero, with several chunks a stage where there are layers enough.
std::vector<Case> colocated(int layers) {
  std::vector<Case> cases;
  for (int dp : {1, 2, 4})
    for (int tp : {1, 2, 4})
      for (int cp : {1, 2, 4})
        for (int pp : {1, 2, 4})
          for (int zero = 0; zero <= 3; ++zero)
            for (int chunks : {1, 2}) {
              const Case c{dp, tp, cp, pp, zero, chunks};
              if (c.ranks() > 8 || (chunks > 1 && (pp == 1 || pp * chunks > layers))) continue;
              cases.push_back(c);
            }
  return cases;
}

// The same decoders with each encoder of tp and dp in {1, 2}, as far as eight ranks go. All zeros are with each decoder, and with
// each encoder: decoders and encoders take turns.
std::vector<Case> with_own_encoder(int layers) {
  std::vector<Case> cases;
  for (Case c : colocated(layers)) {
    const int decoder = c.dp + c.tp + c.cp + c.pp + c.chunks, encoder = (c.zero + decoder) % 4;
    c.encoder_tp = 1 + encoder % 2;
    c.encoder_dp = 1 + encoder / 2;
    if (c.ranks() <= 8) cases.push_back(c);
  }
  return cases;
}

TEST_F(Layouts, AllEqualOneRank) {
  const std::vector<Case> all = colocated(4);
  std::printf("%zu layouts\n", all.size());
  expect_equals_one_rank("narrow", all, 5);
}

TEST_F(Layouts, AllWithAnEncoderOnItsOwnRanksEqualOneRank) {
  const std::vector<Case> all = with_own_encoder(4);
  std::printf("%zu layouts\n", all.size());
  expect_equals_one_rank("narrow", all, 5);
}

// Each pair of values of two dimensions occurs at least once, of those that eight ranks allow.
const std::vector<Case> pairwise = {{2, 2, 2, 1, 0, 1},
                                    {1, 2, 1, 4, 1, 1},
                                    {2, 1, 1, 2, 2, 2},
                                    {1, 4, 2, 1, 3, 1},
                                    {4, 1, 2, 1, 1, 1},
                                    {1, 1, 4, 2, 2, 1},
                                    {2, 2, 1, 2, 3, 1},
                                    {1, 1, 2, 4, 0, 1},
                                    {4, 2, 1, 1, 2, 1},
                                    {2, 1, 4, 1, 3, 1},
                                    {1, 4, 1, 2, 0, 2},
                                    {2, 1, 2, 2, 1, 2, true},
                                    {2, 1, 1, 2, 2, 2, false, 1, 2},
                                    {1, 2, 1, 2, 3, 1, true, 2, 2},
                                    {2, 2, 1, 1, 0, 1, false, 2, 1},
                                    {1, 1, 2, 2, 1, 2, false, 1, 1},
                                    {4, 1, 1, 1, 3, 1, true, 1, 2},
                                    {1, 4, 1, 1, 2, 1, false, 2, 2},
                                    {1, 1, 4, 1, 0, 1, true, 1, 2},
                                    {1, 1, 1, 4, 1, 1, false, 2, 1}};

TEST_F(Layouts, PairsOfAllDimensionsHoldForTwentySteps) {
  expect_equals_one_rank("narrow", pairwise, 20);
}

TEST_F(Layouts, ContrastiveModelsEqualOneRank) {
  expect_equals_one_rank("pairs", {{4, 1, 1, 1, 0}, {2, 2, 1, 1, 1}, {1, 4, 1, 1, 2}, {2, 2, 1, 1, 3, 1, true}, {8, 1, 1, 1, 1}}, 5);
}

TEST_F(Layouts, UnevenStagesEqualOneRank) {
  expect_equals_one_rank("narrow",
                         {{.pp = 2, .stages = "[3,1]"},
                          {.pp = 2, .stages = "[1,3]"},
                          {.dp = 2, .pp = 3, .zero = 3, .stages = "[1,2,1]"},
                          {.tp = 2, .pp = 2, .recompute = true, .encoder_tp = 1, .encoder_dp = 1, .stages = "[1,3]"}},
                         3);
}

// As the plugin tells it where nodes differ; what the job says is stronger, and what is said of another pipeline does not count.
TEST_F(Layouts, StagesAreAsLongAsTheirSpeedSays) {
  ::setenv("MM_STAGE_SPEEDS", "1:1,0.1:0.1", 1);
  const auto stages = [&](Settings settings) {
    settings.push_back("parallel.pp=2");
    TrainOptions options;
    options.job_file = job("narrow");
    options.assignments = settings;
    return prepare(options, 0, 2).stage_layers;
  };
  EXPECT_EQ(stages({}), (std::vector<int>{3, 1}));
  EXPECT_EQ(stages({"parallel.stages=[1,3]"}), (std::vector<int>{1, 3}));
  EXPECT_EQ(stages({"parallel.stages=auto"}), (std::vector<int>{3, 1}));
  expect_equals_one_rank("narrow", {{.pp = 2}, {.pp = 4}}, 2);
  ::setenv("MM_STAGE_SPEEDS", "1:1,1:1,1:1", 1);
  EXPECT_EQ(stages({}), std::vector<int>());
  ::unsetenv("MM_STAGE_SPEEDS");
}

TEST_F(Layouts, OtherModelsEqualOneRank) {
  const std::vector<Case> few = {{1, 4, 1, 1, 1, 1},          {1, 2, 2, 2, 3, 1},
                                 {2, 2, 1, 2, 2, 1},          {1, 1, 1, 4, 1, 1, true},
                                 {2, 1, 1, 2, 3, 1, false, 2, 2}};
  for (const std::string& preset : fixture::presets())
    if (preset != "tiny") expect_equals_one_rank(preset, few, 5);
}

// Frozen parts: no gradient comes back to the encoder, or none but the projector's.
TEST_F(Layouts, FrozenTowersEqualOneRank) {
  const std::vector<Case> few = {{2, 1, 1, 2, 2, 1}, {2, 1, 1, 1, 3, 1, false, 2, 1}, {1, 2, 1, 2, 1, 2, true, 1, 2}};
  expect_equals_one_rank("tiny", few, 3, {"model.freeze=[\"vision_tower.*\"]"});
  expect_equals_one_rank("clip", few, 3, {"model.freeze=[\"vision_tower.*\",\"multi_modal_projector.*\"]"});
  expect_equals_one_rank("qwen2", few, 3, {"model.freeze=[\"language_model.*\"]"});
}

}  // namespace
}  // namespace mm::loop
