// SPDX-License-Identifier: Apache-2.0
// The time model against runs that others measured and published. It has three numbers that are not on a data sheet (efficiency, half_width,
// data_overlap); nothing is fitted to a single run.
#include <gtest/gtest.h>

#include "common/plan/plan.h"
#include "tests/common/plan/models.h"

namespace mm::plan {
namespace {

Machine a100() {  // 312 TFLOP/s dense bf16, 80 GB, 2.0 TB/s, NVLink 300 GB/s each way, 200 Gb/s a GPU
  Machine m;
  m.flops = 312e12;
  m.efficiency = 0.8;
  m.memory_bandwidth = 2.0e12;
  m.inside = {5e-6, 235e9};
  m.across = {12e-6, 22e9};
  return m;
}

// Korthikanti et al., arXiv 2205.05198, tables 3 and 5 ("present work"): A100, tp 8, sequences of 2,048, vocabulary 51,200.
TEST(Published, MegatronOnA100) {
  struct Case {
    int64_t layers, hidden, heads;
    int pp, chunks;
    int64_t samples, micro_batch;
    double seconds;
  };
  for (const Case& r : {Case{48, 6144, 64, 1, 1, 4, 4, 1.10}, Case{96, 12288, 96, 8, 3, 64, 1, 13.75}, Case{105, 20480, 128, 35, 3, 280, 1, 37.83},
                       Case{128, 25600, 160, 64, 1, 512, 1, 71.49}}) {
    Parallelism p;
    p.mesh = {8, 1, 1, r.pp};
    p.chunks = r.chunks;
    p.schedule = r.chunks > 1 ? Schedule::interleaved : Schedule::one_f_one_b;
    p.micro_batch = r.micro_batch;
    const Batch batch{.samples = r.samples, .images = 0, .length = 2048, .labels = 2048};
    const Plan plan = make_plan(gpt(r.layers, r.hidden, r.heads, 51200), batch, p, numbers_of("bfloat16"), a100());
    EXPECT_NEAR(plan.step_seconds / r.seconds, 1, 0.10) << r.layers;
    EXPECT_LT(static_cast<double>(plan.largest_memory().total()), 80e9) << "it ran";
  }
}

// Llama 3 405B, arXiv 2407.21783, table 4: H100, 16 M tokens a step, tp 8, pp 16. The number of chunks is not published.
TEST(Published, Llama3OnH100) {
  const Model m = decoder(llama_layers(126, 16384, 53248, 128, 8), 128256);
  struct Case {
    int cp, dp;
    int64_t samples;
    double length, mfu;
  };
  for (const Case& r : {Case{1, 64, 2048, 8192, 0.43}, Case{1, 128, 2048, 8192, 0.41}, Case{16, 8, 128, 131072, 0.38}}) {
    Parallelism p;
    p.mesh = {8, r.cp, r.dp, 16};
    p.chunks = 7;
    p.schedule = Schedule::interleaved;
    p.micro_batch = 1;
    const Plan plan = make_plan(m, {.samples = r.samples, .images = 0, .length = r.length, .labels = r.length}, p, numbers_of("bfloat16"), {});
    EXPECT_NEAR(plan.mfu / r.mfu, 1, 0.2) << r.dp;
  }
}

}  // namespace
}  // namespace mm::plan
