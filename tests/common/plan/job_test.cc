// SPDX-License-Identifier: Apache-2.0
// A job file and its model's configuration as the plan sees them.
#include "common/plan/job.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "common/error.h"
#include "common/files.h"

namespace mm::plan {
namespace {

class PlannedJob : public testing::Test {
 protected:
  PlannedJob() {
    char pattern[] = "/tmp/mm-plan-XXXXXX";
    folder_ = ::mkdtemp(pattern);
    write_file_durably(folder_ + "/config.json", R"({"model_type": "llava", "vision_feature_select_strategy": "full",
      "vision_config": {"model_type": "siglip_vision_model", "image_size": 32, "patch_size": 8, "num_hidden_layers": 2},
      "text_config": {"model_type": "qwen2", "num_hidden_layers": 6, "max_position_embeddings": 512}})");
    job_.file = "job.toml";
    job_.model.path = folder_;
    job_.data.shards = {"d/*.tar"};
  }
  ~PlannedJob() override { std::filesystem::remove_all(folder_); }
  Job job_;
  std::string folder_;
};

TEST_F(PlannedJob, HasWhatTheFileSays) {
  job_.parallel.tp = 2;
  job_.parallel.pp = 2;
  job_.parallel.virtual_stages = 3;
  job_.parallel.recompute = "full";
  job_.parallel.micro_batch = 4;
  job_.parallel.encoder_tp = 1;
  job_.parallel.encoder_dp = 2;
  job_.parallel.dtype = "bfloat16";
  const JobPlan p = plan_of_job(job_, 18);
  EXPECT_EQ(p.parallelism.mesh.dp, 4);
  EXPECT_EQ(p.parallelism.chunks, 3);
  EXPECT_EQ(p.parallelism.schedule, Schedule::interleaved);
  EXPECT_TRUE(p.parallelism.recompute);
  EXPECT_EQ(p.parallelism.encoder_ranks(), 2);
  EXPECT_EQ(p.parallelism.micro_batches(p.batch), 4);  // 64 / 4 samples a replica
  EXPECT_EQ(p.numbers.value, 2);
  // The tower's 16 positions and 64 more, of which the end is none.
  EXPECT_EQ(p.batch.length, 79);
  EXPECT_EQ(p.batch.labels, 63);
  job_.parallel.virtual_stages = 4;
  EXPECT_THROW(plan_of_job(job_, 18), Error);
}

TEST_F(PlannedJob, TextFillsTheLimitOfPositions) {
  job_.data.max_length = 100;
  EXPECT_EQ(without_layout(job_).batch.length, 99);
  job_.data.max_length = 4096;
  EXPECT_EQ(without_layout(job_).batch.length, 511) << "the model's own limit";
  job_.data.max_length = 17;
  EXPECT_THROW(without_layout(job_), Error);
}

TEST_F(PlannedJob, FrozenPartsHaveNoGradients) {
  const Model all = without_layout(job_).model;
  job_.model.freeze = {"vision_tower.*"};
  const Model frozen = without_layout(job_).model;
  EXPECT_FALSE(frozen.train_vision);
  EXPECT_TRUE(frozen.train_projector && frozen.train_text);
  job_.model.freeze = {"language_model.*", "*.bias"};
  EXPECT_FALSE(without_layout(job_).model.train_text);
  EXPECT_TRUE(without_layout(job_).model.train_vision);
  EXPECT_TRUE(all.train_vision && all.train_text);
}

TEST(PlannedMachine, IsTheSitesGpu) {
  Site site;
  site.gpu_memory = 141;
  EXPECT_EQ(machine_of(site, "bfloat16").memory, 141e9);
  EXPECT_EQ(machine_of(site, "float32").flops, machine_of(site, "bfloat16").flops / 2);
}

}  // namespace
}  // namespace mm::plan
