// SPDX-License-Identifier: Apache-2.0
#include "common/job.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "common/error.h"
#include "common/files.h"
#include "common/smaller_layouts.h"

namespace mm {
namespace {

class JobFile : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/mm-job-XXXXXX";
    folder_ = ::mkdtemp(pattern);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& text) {
    const std::string path = folder_ + "/job.toml";
    write_file_durably(path, text);
    return path;
  }
  std::string error_of(const std::string& text, const std::vector<std::string>& sets = {}) {
    try {
      load_job(write(text), sets);
    } catch (const Error& e) {
      EXPECT_EQ(e.status, exit_status::usage);
      return e.what();
    }
    return "";
  }
  std::string folder_;
  const std::string least_ = "[model]\npath = \"m\"\n[data]\nshards = \"d/*.tar\"\n";
};

TEST_F(JobFile, NeedsOnlyModelAndData) {
  const Job job = load_job(write(least_));
  EXPECT_EQ(job.model.path, "m");
  EXPECT_EQ(job.data.shards, std::vector<std::string>{"d/*.tar"});
  EXPECT_EQ(job.data.global_batch, 64);
  EXPECT_EQ(save_every(job).steps, 100);
}

TEST_F(JobFile, UnknownKeyNamesFileLineAndTheNearestKey) {
  const std::string message = error_of(least_ + "[optim]\nweigth_decay = 0.1\n");
  EXPECT_NE(message.find("job.toml:6"), std::string::npos) << message;
  EXPECT_NE(message.find("optim.weight_decay"), std::string::npos) << message;
}

TEST_F(JobFile, WrongTypesRangesAndSyntaxAreErrors) {
  EXPECT_NE(error_of(least_ + "[run]\nsteps = \"many\"\n").find("whole number"), std::string::npos);
  EXPECT_NE(error_of(least_ + "[run]\nsteps = 0\n").find("outside"), std::string::npos);
  EXPECT_NE(error_of(least_ + "[parallel]\ndtype = \"int8\"\n").find("bfloat16"), std::string::npos);
  EXPECT_NE(error_of(least_ + "[run\n").find("job.toml:5"), std::string::npos);
  EXPECT_NE(error_of("[data]\nshards = \"x\"\n").find("model.path"), std::string::npos);
  EXPECT_NE(error_of(least_ + "[checkpoint]\nevery = \"3 fortnights\"\n").find("fortnights"), std::string::npos);
}

TEST_F(JobFile, AssignmentsWinAndTakeBareWords) {
  const Job job = load_job(write(least_), {"run.steps=7", "run.dir=runs/x", "optim.betas=[0.8, 0.9]", "checkpoint.every=2 epochs"});
  EXPECT_EQ(job.run.steps, 7);
  EXPECT_EQ(job.run.dir, "runs/x");
  EXPECT_EQ(job.optim.betas[0], 0.8);
  EXPECT_EQ(save_every(job).epochs, 2);
  EXPECT_NE(error_of(least_, {"run.step=7"}).find("run.steps"), std::string::npos);
}

TEST_F(JobFile, CheckpointsAreMadeByStepsEpochsMinutesOrByWhatTheyCost) {
  const auto every = [&](const std::string& text) { return save_every(load_job(write(least_), {"checkpoint.every=\"" + text + "\""})); };
  EXPECT_EQ(every("7").steps, 7);
  EXPECT_EQ(every("1 epoch").epochs, 1);
  EXPECT_EQ(every("0.5 epochs").epochs, 0.5);
  EXPECT_EQ(every("10 min").minutes, 10);
  EXPECT_TRUE(every("auto").automatic);
  for (const std::string wrong : {"0", "-1 min", "2.5 steps", "10 parsecs", "automatic", ""})
    EXPECT_NE(error_of(least_ + "[checkpoint]\nevery = \"" + wrong + "\"\n").find("checkpoint.every"), std::string::npos) << wrong;
}

TEST_F(JobFile, TiersAreKnownWords) {
  const Job job = load_job(write(least_ + "[checkpoint]\ntiers = [\"memory\", \"node\"]\nshared_every = 0\n"));
  EXPECT_TRUE(has_tier(job, "memory") && has_tier(job, "node") && !has_tier(job, "peer"));
  EXPECT_EQ(job.checkpoint.shared_every, 0);
  EXPECT_FALSE(has_tier(load_job(write(least_)), "memory"));
  EXPECT_NE(error_of(least_ + "[checkpoint]\ntiers = [\"nvme\"]\n").find("none of: memory, node, peer, shared"), std::string::npos);
  EXPECT_NE(error_of(least_ + "[checkpoint]\ntiers = [\"peer\"]\n").find("needs \"node\""), std::string::npos);
}

TEST_F(JobFile, DataSetsMixedByWeightStandInPlaceOfShards) {
  const std::string rest = least_.substr(0, least_.find("[data]"));
  const Job job = load_job(write(rest + "[data]\nmix = {\"a/*.tar\" = 7, \"b/*.tar\" = 0.5}\nversion = \"00ab\"\nshuffle_window = 0\n"));
  EXPECT_EQ(job.data.mix, (std::map<std::string, double>{{"a/*.tar", 7}, {"b/*.tar", 0.5}}));
  EXPECT_EQ(job.data.version, "00ab");
  EXPECT_EQ(job.data.shuffle_window, 0);
  EXPECT_NE(error_of(least_ + "mix = {\"a/*.tar\" = 1}\n").find("data.shards and data.mix"), std::string::npos);
  EXPECT_NE(error_of(rest + "[data]\nmix = {\"a/*.tar\" = -1}\n").find("data.mix"), std::string::npos);
  EXPECT_NE(error_of(rest + "[data]\nshuffle = true\n").find("data.shards is missing"), std::string::npos);
  EXPECT_NE(error_of(least_ + "max_bad_percent = 101\n").find("data.max_bad_percent"), std::string::npos);
}

TEST_F(JobFile, KeysThatHaveOneValueYetAndKeysThatAreReserved) {
  const Job job = load_job(write(least_ + "pack = true\n[log]\ntensorboard = false\n"));
  EXPECT_FALSE(job.log.tensorboard);
  EXPECT_NE(error_of(least_ + "pack = false\n").find("always packed"), std::string::npos);
  EXPECT_NE(error_of(least_ + "mix = \"a\"\n").find("data.mix"), std::string::npos);
  EXPECT_THROW(parse_spec("(null)"), Error);  // what Slurm hands over for an option without its argument
}

TEST_F(JobFile, SpecIsAFileValuesOrAWord) {
  EXPECT_EQ(parse_spec("off").kind, Spec::Kind::off);
  EXPECT_EQ(parse_spec("auto").kind, Spec::Kind::automatic);
  const Spec values = parse_spec("tp=8,pp=2,spares=1,data.global_batch=32");
  EXPECT_EQ(values.kind, Spec::Kind::values);
  EXPECT_EQ(values.job.parallel.tp, 8);
  EXPECT_EQ(values.job.recovery.spares, 1);
  EXPECT_EQ(parse_spec(write(least_)).kind, Spec::Kind::file);
  EXPECT_THROW(parse_spec(""), Error);
  EXPECT_THROW(parse_spec("no-such-file.toml"), Error);
  EXPECT_THROW(parse_spec("pt=8"), Error);
}

TEST_F(JobFile, SmallerLayouts) {
  const Job job = load_job(write(least_ + "[recovery]\nlayouts = [\"same\", \"tp=2,pp=4\"]\n"));
  const auto layouts = smaller_layouts(job);
  ASSERT_EQ(layouts.size(), 2U);
  EXPECT_TRUE(layouts[0].same);
  EXPECT_FALSE(layouts[1].same);
  EXPECT_EQ(layouts[1].tp * 100 + layouts[1].cp * 10 + layouts[1].pp, 214);
  for (const char* wrong : {"dp=2", "tp=0", "tp=2x", "tp=", "", "same,tp=2", "tp=2,"})
    EXPECT_NE(error_of(least_ + "[recovery]\nlayouts = [\"" + wrong + "\"]\n").find("neither \"same\""), std::string::npos) << wrong;
}

TEST_F(JobFile, SwallowedScriptIsRefusedWithWhatWasMeant) {
  const std::string script = folder_ + "/train.sh";
  write_file_durably(script, "#!/bin/bash\nsrun hostname\n");
  try {
    parse_spec(script);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("--mm-train=auto " + script), std::string::npos) << e.what();
  }
}

TEST_F(JobFile, LayoutMustFitTasksAndBatch) {
  Job job = load_job(write(least_), {"parallel.tp=2", "data.global_batch=6"});
  EXPECT_EQ(job_layout(job, 4).dp, 2);
  EXPECT_THROW(job_layout(job, 5), Error);
  EXPECT_THROW(job_layout(job, 8), Error);  // dp 4 does not divide 6
}

TEST_F(JobFile, PipelineIsWhatScheduleAndVirtualSay) {
  const auto of = [&](std::vector<std::string> sets) {
    sets.insert(sets.begin(), "parallel.pp=4");
    const Pipeline p = pipeline(load_job(write(least_), sets));
    return p.schedule + " " + std::to_string(p.chunks);
  };
  EXPECT_EQ(of({}), "1f1b 1");
  EXPECT_EQ(of({"parallel.virtual=3"}), "interleaved 3");
  EXPECT_EQ(of({"parallel.schedule=interleaved"}), "interleaved 2");
  EXPECT_EQ(of({"parallel.schedule=interleaved", "parallel.virtual=1"}), "1f1b 1");
  EXPECT_EQ(of({"parallel.schedule=gpipe"}), "gpipe 1");
  EXPECT_EQ(of({"parallel.schedule=interleaved", "parallel.pp=1"}), "1f1b 1");
  EXPECT_NE(error_of(least_, {"parallel.schedule=gpipe", "parallel.virtual=2"}).find("parallel.virtual = 2"), std::string::npos);
  EXPECT_NE(error_of(least_, {"parallel.schedule=zigzag"}).find("1f1b"), std::string::npos);
}

TEST_F(JobFile, EncoderIsColocatedOrHasItsOwnRanks) {
  const std::string own = least_ + "[parallel]\nencoder = {tp = 2, dp = 3}\n";
  EXPECT_EQ(encoder_ranks(load_job(write(least_))), 0);
  EXPECT_EQ(encoder_ranks(load_job(write(own))), 6);
  EXPECT_EQ(encoder_ranks(load_job(write(own), {"parallel.encoder=colocated"})), 0);
  EXPECT_EQ(encoder_ranks(load_job(write(least_), {"parallel.encoder={dp = 2}"})), 2);
  EXPECT_EQ(encoder_ranks(load_job(write(least_), {"parallel.encoder.tp=4"})), 4);
  EXPECT_NE(error_of(least_ + "[parallel]\nencoder = {pp = 2}\n").find("parallel.encoder.tp"), std::string::npos);
  EXPECT_NE(error_of(least_ + "[parallel]\nencoder = \"apart\"\n").find("colocated"), std::string::npos);
  Job job = load_job(write(own), {"parallel.tp=2"});
  EXPECT_EQ(job_layout(job, 14).dp, 4);
  EXPECT_THROW(job_layout(job, 6), Error);
}

TEST_F(JobFile, LearningRateFactorsAreATableOfPatterns) {
  const Job job = load_job(write(least_ + "[optim.lr_scale]\n\"vision_tower.*\" = 0.1\n\"*.bias\" = 0\n"));
  EXPECT_EQ(job.optim.lr_scale, (std::map<std::string, double>{{"*.bias", 0}, {"vision_tower.*", 0.1}}));
  EXPECT_EQ(load_job(write(least_), {"optim.lr_scale={\"a.b\" = 2}"}).optim.lr_scale.at("a.b"), 2);
  EXPECT_NE(error_of(least_ + "[optim]\nlr_scale = 3\n").find("table"), std::string::npos);
  EXPECT_NE(error_of(least_ + "[optim.lr_scale]\nx = -1\n").find("outside"), std::string::npos);
  EXPECT_NE(error_of(least_ + "[optim]\nlabel_smoothing = 1.0\n").find("label_smoothing"), std::string::npos);
}

TEST(LayoutTest, RanksAndCoordinatesAreInverse) {
  const Layout layout = layout_for(2, 3, 2, 48);
  EXPECT_EQ(layout.dp, 4);
  for (int r = 0; r < 48; ++r) EXPECT_EQ(layout.rank(layout.coordinates(r)), r);
  EXPECT_EQ(layout.coordinates(1).tp, 1);
}

}  // namespace
}  // namespace mm
