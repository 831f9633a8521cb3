// SPDX-License-Identifier: Apache-2.0
// Parameters, memory and operations against published or hand-computed numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "common/error.h"
#include "common/files.h"
#include "common/plan/flops.h"
#include "common/plan/load.h"
#include "common/plan/parameters.h"
#include "tests/common/plan/models.h"

namespace mm::plan {
namespace {

TEST(Parameters, AreThoseOfPublishedModels) {
  EXPECT_EQ(parameters_of(decoder(llama_layers(32, 4096, 11008, 32, 32), 32000)), 6'738'415'616);     // Llama 2 7B
  EXPECT_EQ(parameters_of(decoder(llama_layers(80, 8192, 28672, 64, 8), 32000)), 68'976'648'192);     // Llama 2 70B
  EXPECT_EQ(parameters_of(decoder(llama_layers(32, 4096, 14336, 32, 8), 128256)), 8'030'261'248);     // Llama 3 8B
  EXPECT_EQ(parameters_of(decoder(llama_layers(126, 16384, 53248, 128, 8), 128256)), 405'853'388'800);  // Llama 3.1 405B
  Layers qwen = llama_layers(24, 896, 4864, 14, 2);
  qwen.qkv_bias = true;
  EXPECT_EQ(parameters_of(decoder(qwen, 151936, true)), 494'032'768);  // Qwen2 0.5B
  EXPECT_EQ(parameters_of(llava_7b()), 7'063'427'072);                 // LLaVA 1.5 7B
  EXPECT_EQ(parameters_of(clip_model(encoder_layers(12, 768, 3072, 12), 224, 32, encoder_layers(12, 512, 2048, 8), 512)), 151'277'313);
  EXPECT_EQ(parameters_of(clip_model(encoder_layers(24, 1024, 4096, 16), 224, 14, encoder_layers(12, 768, 3072, 12), 768)), 427'616'513);
}

// Every parameter is held exactly once over the tensor-parallel slices and stages, but for what all hold whole.
TEST(Parameters, StagesTogetherHoldTheModel) {
  const Model m = decoder(llama_layers(13, 256, 512, 8, 4), 1000);
  for (int pp : {1, 2, 3, 4})
    for (int chunks : {1, 2, 3}) {
      Parallelism p;
      p.mesh.pp = pp;
      p.chunks = pp == 1 ? 1 : chunks;
      p.mesh.tp = 4;
      int64_t cut = 0, whole = 0;
      for (int s = 0; s < pp; ++s)
        for (const plan::Run& run : runs_of_stage(m, p, s)) (run.holders == Group::data ? cut : whole) += run.size * run.times;
      EXPECT_EQ(4 * cut + whole, parameters_of(m)) << pp << " " << chunks;
    }
}

// Where a slice of the query heads would cut a group that shares a key head, every rank holds all key heads.
TEST(Parameters, KeyHeadsAreDealtOutOrHeldWhole) {
  const Layers l = llama_layers(1, 96, 256, 6, 2);
  EXPECT_EQ(held_kv_heads(l, 1), 2);
  EXPECT_EQ(held_kv_heads(l, 2), 1);
  EXPECT_EQ(held_kv_heads(l, 4), 2);
  EXPECT_EQ(held_kv_heads(llama_layers(1, 64, 64, 8, 4), 3), 4);  // 3, 3, 2 heads of groups of 2
}

// Rajbhandari et al., arXiv 1910.02054, figure 1: 7.5 B parameters, 64 ranks, Adam in mixed precision (K = 12).
TEST(Memory, IsThatOfZero) {
  const Layers layers = llama_layers(36, 4096, 16384, 32, 32);
  const Model m = decoder(layers, 4096);
  const Numbers mixed{2, 2, 4, 8, 2};
  const double parameters = static_cast<double>(parameters_of(m));
  const double expected[] = {16, 4 + 12.0 / 64, 2 + 14.0 / 64, 16.0 / 64};
  for (int zero = 0; zero < 4; ++zero) {
    Parallelism p;
    p.mesh.dp = 64;
    p.zero = zero;
    const Memory memory = memory_of(m, p, mixed, load_of(m, {.samples = 64, .length = 128, .labels = 128}, p, 0), runs_of_stage(m, p, 0));
    const double bytes = static_cast<double>(memory.parameters + memory.gradients + memory.moments);
    EXPECT_NEAR(bytes / parameters, expected[zero], 1e-4) << zero;
  }
  // The paper's figure for 7.5 B: 120, 31.4, 16.6 and 1.88 GB.
  EXPECT_NEAR(7.5e9 * expected[1] / 1e9, 31.4, 0.05);
}

// Korthikanti et al., arXiv 2205.05198, equation 2 without the scores that are never stored, in bytes of bf16: their 34 s b h per layer
// are, without dropout masks (5 s b h, of which we have none), 2 of x, 2 + 2 of the normed inputs, 6 of q, k, v, 2 of attention's result, 2 of the
// middle, 8 + 8 of the MLP: 32 s b h - 3 masks of 1 byte = what an MLP of 4 h keeps here.
TEST(Memory, ActivationsOfALayer) {
  const Model m = gpt(1, 1024, 16, 1024);
  Parallelism p;
  const Batch batch{.samples = 4, .length = 2048, .labels = 2048};
  const double rows = 4 * 2048, h = 1024;
  const double statistics = rows * (2 + 2 + 16), last_norm = 2 * rows * h;
  EXPECT_DOUBLE_EQ(saved_elements(m, p, load_of(m, batch, p, 0)), rows * h * (1 + 2 + 3 + 1 + 1 + 8) + statistics + last_norm);
  p.mesh.tp = 8;
  EXPECT_DOUBLE_EQ(saved_elements(m, p, load_of(m, batch, p, 0)), (rows * h * 16 + statistics + last_norm) / 8);
  p.recompute = true;
  EXPECT_DOUBLE_EQ(saved_elements(m, p, load_of(m, batch, p, 0)), (rows * h + last_norm) / 8);
}

// 6 N D and the attention term: 6 L s h' per position of causal attention, forward and backward (h' = heads * head size).
TEST(Flops, AreSixTimesParametersAndAttention) {
  const Model m = decoder(llama_layers(32, 4096, 14336, 32, 8), 128256);
  const int64_t length = 8192;
  const double positions = 8192;
  const double weights = static_cast<double>(parameters_of(m) - m.vocabulary * 4096 - (2 * 32 + 1) * 4096);  // embedding and norms: no product
  const double attention = 6 * 32 * positions * 4096;
  EXPECT_NEAR(flops_of_batch(m, 0, std::vector<int64_t>{length}, length) / (positions * (6 * weights + attention)), 1, 1e-12);
  // Labels on the last tenth only: that much less of the head and of the last layer.
  const double less = flops_of_batch(m, 0, std::vector<int64_t>{length}, length / 10);
  EXPECT_LT(less, positions * (6 * weights + attention) * 0.96);
  EXPECT_GT(less, positions * 6 * weights * 31 / 32 * 0.9);
}

TEST(Flops, OfAPictureAreThoseOfItsTower) {
  const Model m = llava_7b();
  // 577 positions, 23 layers of 12 d^2 weights, scores and sums over all positions, 576 patches of 588 values.
  const double n = 577, d = 1024;
  const double forward = 23 * (2 * n * 12 * d * d + 4 * n * n * d) + 2 * 576.0 * 588 * d;
  EXPECT_DOUBLE_EQ(tower_work(m).forward, forward);
  EXPECT_DOUBLE_EQ(tower_work(m).backward, 2 * forward - 2 * 576.0 * 588 * d);
  EXPECT_NEAR(forward / 1e9, 367, 1);
  Model frozen = m;
  frozen.train_vision = false;
  EXPECT_EQ(tower_work(frozen).backward, 0);
  EXPECT_EQ(projector_work(frozen).backward, projector_work(m).backward - 2 * 576.0 * 1024 * 4096);
}

// The stages' operations add up to the model's, for even divisions.
TEST(Flops, OfRanksAddUpToTheModels) {
  Model m = decoder(llama_layers(8, 512, 1024, 8, 4), 1024);
  add_tower(m, encoder_layers(4, 256, 512, 8), 64, 8, false, 4);
  const Batch batch{.samples = 64, .images = 1, .length = 128, .labels = 40};
  for (int tp : {1, 2, 4})
    for (int cp : {1, 2})
      for (int pp : {1, 2, 4})
        for (bool recompute : {false, true}) {
          Parallelism p;
          p.mesh = {tp, cp, 2, pp};
          p.micro_batch = 8;
          p.recompute = recompute;
          const Plan plan = make_plan(m, batch, p, {}, {});
          double sum = 0, again = 0;
          for (const StagePlan& s : plan.stages) sum += s.flops.forward + s.flops.backward, again += s.flops.recompute;
          EXPECT_NEAR(sum * tp * cp * 2, plan.model_flops, 1e-12 * plan.model_flops);
          EXPECT_EQ(again > 0, recompute);
        }
}

class ModelFolder : public testing::Test {
 protected:
  ModelFolder() {
    char pattern[] = "/tmp/mm-plan-XXXXXX";
    folder_ = ::mkdtemp(pattern);
  }
  ~ModelFolder() override { std::filesystem::remove_all(folder_); }
  Model read(const std::string& config) {
    write_file_durably(folder_ + "/config.json", config);
    return read_model(folder_);
  }
  std::string folder_;
};

TEST_F(ModelFolder, IsReadAsHuggingFaceWritesIt) {
  const Model llama = read(R"({"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192})");
  EXPECT_EQ(parameters_of(llama), 70'553'706'496);
  EXPECT_EQ(llama.max_length, 8192);
  const Model llava = read(R"({"model_type": "llava", "vision_config": {"model_type": "clip_vision_model", "hidden_size": 1024,
    "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "image_size": 336, "patch_size": 14},
    "text_config": {"model_type": "llama", "vocab_size": 32064}})");
  EXPECT_EQ(parameters_of(llava), 7'063'427'072);
  EXPECT_EQ(llava.used_vision_layers, 23);
  EXPECT_EQ(llava.features, 576);
  const Model clip = read(R"({"model_type": "clip", "vision_config": {}, "text_config": {}})");
  EXPECT_EQ(parameters_of(clip), 151'277'313);
  const Model siglip = read(R"({"model_type": "siglip", "vision_config": {"model_type": "siglip_vision_model"},
    "text_config": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}})");
  EXPECT_EQ(parameters_of(siglip), 203'155'970);  // siglip-base-patch16-224
  for (const char* bad : {"", "[]", "{}", R"({"model_type": "bert"})", R"({"model_type": "llama", "hidden_size": -1})",
                          R"({"model_type": "llama", "num_key_value_heads": 3})", R"({"model_type": "llava"})"})
    EXPECT_THROW(read(bad), Error) << bad;
}

}  // namespace
}  // namespace mm::plan
