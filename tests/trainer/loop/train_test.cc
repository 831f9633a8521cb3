// SPDX-License-Identifier: Apache-2.0
// The whole trainer against the frozen reference, on one rank and on four, and against itself: threads, layouts, restarts.
#include <fmt/format.h>
#include <signal.h>

#include <cmath>
#include <fstream>
#include <random>
#include <regex>

#include "tests/trainer/loop/harness.h"
#include "trainer/interop/safetensors.h"

namespace mm::loop {
namespace {

using namespace std::chrono_literals;

TEST_F(TrainerTest, EqualsTheReference) {
  for (int ranks : {1, 4}) {
    const std::string run = fmt::format("f64-{}", ranks);
    const CommandResult r = train(run, {}, ranks);
    ASSERT_EQ(r.exit_code, 0) << r.err;
    EXPECT_LT(distance_from_reference(metrics(run)), 1e-9);
  }
  for (int ranks : {1, 4}) {
    const std::string run = fmt::format("f32-{}", ranks);
    const CommandResult r = train(run, {"--set", "parallel.dtype=float32", "--set", "parallel.micro_batch=3"}, ranks);
    ASSERT_EQ(r.exit_code, 0) << r.err;
    EXPECT_LT(distance_from_reference(metrics(run)), 1e-4);
  }
}

TEST_F(TrainerTest, ZeroThreadsAndMicroBatchesAreOneComputation) {
  const std::vector<std::string> few = {"--set", "run.steps=8"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), few.begin(), few.end());
    return more;
  };
  ASSERT_EQ(train("plain", with({}), 2).exit_code, 0);
  ASSERT_EQ(train("threads", with({"--set", "parallel.threads=2"}), 2).exit_code, 0);
  ASSERT_EQ(train("zero0", with({"--set", "parallel.zero=0"}), 2).exit_code, 0);
  EXPECT_EQ(numbers("plain").size(), 8U);
  EXPECT_EQ(numbers("plain"), numbers("threads"));
  EXPECT_EQ(numbers("plain"), numbers("zero0"));
  ASSERT_EQ(train("micro", with({"--set", "parallel.micro_batch=1", "--set", "parallel.threads=1"}), 2).exit_code, 0);
  const std::vector<Numbers> a = metrics("plain"), b = metrics("micro");
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i].at("loss") / b[i].at("loss"), 1, 1e-12);
    EXPECT_NEAR(a[i].at("grad_norm") / b[i].at("grad_norm"), 1, 1e-12);
  }
}

// Samples dealt out by work: other ranks have them, and some ranks more, but it is the same step. What that is for is said.
TEST_F(TrainerTest, SamplesDealtOutByWorkAreTheSameComputation) {
  for (int ranks : {1, 4}) {
    const std::string run = fmt::format("dealt-{}", ranks);
    const CommandResult r = train(run, {"--set", "data.balance=true", "--set", "parallel.micro_batch=1"}, ranks);
    ASSERT_EQ(r.exit_code, 0) << r.err;
    EXPECT_LT(distance_from_reference(metrics(run)), 1e-9);
    const std::regex said("balance: over 20 steps the busiest of ([14]) ranks that read has ([0-9.]+) times the mean work in order, ([0-9.]+) dealt out");
    std::smatch match;
    ASSERT_TRUE(std::regex_search(r.err, match, said)) << r.err;
    EXPECT_EQ(match[1], std::to_string(ranks));
    EXPECT_LE(std::stod(match[3]), std::stod(match[2]));
    if (ranks == 4) {
      EXPECT_LT(std::stod(match[3]), std::stod(match[2]) - 0.01);
    }
  }
}

// Gradients of the first step: the norms of the frozen reference, and the same tensors from one rank and from four.
TEST_F(TrainerTest, GradientsDoNotDependOnTheLayout) {
  for (int ranks : {1, 4}) {
    const CommandResult r =
        train(fmt::format("run-{}", ranks), {"--dump-gradients", at(fmt::format("g{}.safetensors", ranks))}, ranks);
    ASSERT_EQ(r.exit_code, 0) << r.err;
    EXPECT_FALSE(std::filesystem::exists(at(fmt::format("run-{}/metrics.jsonl", ranks))));
  }
  const interop::Safetensors one(at("g1.safetensors")), four(at("g4.safetensors"));
  const Numbers norms = reference_gradient_norms();
  ASSERT_EQ(one.tensors().size(), norms.size());
  for (const auto& [name, info] : one.tensors()) {
    std::vector<double> a(static_cast<size_t>(info.elements())), b = a;
    one.read(name, a.data());
    four.read(name, b.data());
    double norm = 0, apart = 0;
    for (size_t i = 0; i < a.size(); ++i) norm += a[i] * a[i], apart += (a[i] - b[i]) * (a[i] - b[i]);
    // The biases of the keys have no gradient but for rounding: a softmax does not see them.
    const double tolerance = 1e-12 * std::sqrt(norm) + 1e-14;
    EXPECT_LE(std::sqrt(apart), tolerance) << name;
    EXPECT_NEAR(std::sqrt(norm), norms.at(name), tolerance) << name;
  }
}

// SIGKILL at ten moments that nothing chooses but the seed: five on one rank, five on one of four ranks, which have one thread
// and two by turns.
TEST_F(TrainerTest, Case07ContinuesBitwiseAfterBeingKilled) {
  for (int ranks : {1, 4}) {
    const std::vector<std::string> often = {"--json", "--set", "checkpoint.every=2"};
    const std::string whole = fmt::format("whole-{}", ranks), killed = fmt::format("killed-{}", ranks);
    ASSERT_EQ(train(whole, often, ranks).exit_code, 0);
    // However busy the disk is, there is a checkpoint to continue from: this one is waited for.
    Child first(command(killed, often, ranks), at("err"));
    ASSERT_TRUE(first.wait_for_step(1)) << first.end().err;
    ::kill(first.ranks()[0], SIGTERM);
    ASSERT_EQ(first.end().status, 75);
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      std::mt19937_64 random(seed * 100 + static_cast<uint64_t>(ranks));
      const int64_t step = 3 * static_cast<int64_t>(seed - 1) + static_cast<int64_t>(random() % 4);
      const auto later = std::chrono::milliseconds(random() % 150);
      std::vector<std::string> with_threads = often;
      with_threads.insert(with_threads.end(), {"--set", fmt::format("parallel.threads={}", 1 + seed % 2)});
      Child child(command(killed, with_threads, ranks), at("err"));
      ASSERT_TRUE(child.wait_for_step(step)) << child.end().err;
      child.wait_ended(later);
      const std::vector<pid_t> all = child.ranks();
      const size_t victim = random() % all.size();
      std::printf("seed %lu: rank %zu of %d killed %ld ms after step %ld\n", seed, victim, ranks,
                  static_cast<long>(later.count()), static_cast<long>(step));
      ::kill(all[victim], SIGKILL);
      child.end();
    }
    const CommandResult r = train(killed, often, ranks);
    ASSERT_EQ(r.exit_code, 0) << r.err;
    EXPECT_NE(r.err.find("continues at step"), std::string::npos) << r.err;
    EXPECT_EQ(numbers(killed), numbers(whole));
  }
}

TEST_F(TrainerTest, SavesAndAsksForRequeueWhenTerminated) {
  ASSERT_EQ(train("whole", {}, 2).exit_code, 0);
  Child child(command("run", {"--json", "--set", "checkpoint.every=1000"}, 2), at("err"));
  ASSERT_TRUE(child.wait_for_step(3));
  ::kill(child.ranks()[1], SIGTERM);
  const Ended ended = child.end();
  EXPECT_EQ(ended.status, 75) << ended.err;
  EXPECT_NE(ended.err.find("asked to stop"), std::string::npos) << ended.err;
  const CommandResult r = train("run", {}, 2);
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_NE(r.err.find("continues at step"), std::string::npos) << r.err;
  EXPECT_EQ(numbers("run"), numbers("whole"));
}

TEST_F(TrainerTest, Case07AnotherLayoutContinuesTheRun) {
  ASSERT_EQ(train("run", {"--set", "run.steps=20", "--dump-gradients", at("g")}, 1).exit_code, 0);
  Child child(command("run", {"--json"}, 1), at("err"));
  // Saves are made beside the training, on a busy machine some steps later.
  int64_t step = 7;
  do
    ASSERT_TRUE(child.wait_for_step(step));
  while (!std::filesystem::exists(at("run/checkpoints/step-0000005")) && ++step < 19);
  ::kill(child.pid(), SIGKILL);
  child.end();
  const CommandResult r = train("run", {"--set", "parallel.zero=0"}, 4);
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_TRUE(std::regex_search(r.err, std::regex("continues at step (5|10|15) of 20"))) << r.err;
  EXPECT_NE(r.err.find("since its checkpoint, layout.dp was 1 and is 4 now"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("since its checkpoint, layout.zero was 1 and is 0 now"), std::string::npos) << r.err;
  EXPECT_LT(distance_from_reference(metrics("run")), 1e-9);
  const CommandResult again = train("run");
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_NE(again.err.find("nothing is left to do"), std::string::npos) << again.err;
  EXPECT_EQ(metrics("run").size(), 20U);
}

TEST_F(TrainerTest, SaysCaptions) {
  ASSERT_EQ(train("run", {"--set", "data.shuffle=true"}).exit_code, 0);
  ASSERT_EQ(run_command({"tar", "-xf", at("data/shapes-00000.tar"), "-C", folder_.string(), "000000.png", "000001.png"}, 10s)
                .exit_code,
            0);
  std::ofstream(at("bad.png")) << "no picture";
  const CommandResult said =
      trainer({"sample", at("run"), at("000000.png"), at("bad.png"), at("000001.png"), "--json", "--max-tokens", "12"});
  EXPECT_EQ(said.exit_code, 3);
  EXPECT_NE(said.err.find(at("bad.png")), std::string::npos) << said.err;
  std::istringstream lines(said.out);
  int captions = 0;
  for (std::string line; std::getline(lines, line); ++captions) {
    EXPECT_EQ(numbers_of(line).at("step"), 20);
    EXPECT_LE(text_of(line, "caption").size(), 36U);  // bytes that are no UTF-8 take three
  }
  EXPECT_EQ(captions, 2);
}

// 64 samples in batches of 5, the last one short. Trained in 8 batches of 8 without a change, the model's loss over the data set is
// what eval says.
TEST_F(TrainerTest, Case14EvaluationCountsEachSampleOnce) {
  ASSERT_EQ(train("run").exit_code, 0);
  const CommandResult eval = trainer({"eval", at("run"), "--derange", "--json", "--batch", "5"});
  ASSERT_EQ(eval.exit_code, 0) << eval.err;
  const Numbers j = numbers_of(eval.out);
  EXPECT_EQ(j.at("samples"), 64);
  EXPECT_EQ(j.at("tokens"), 1675);
  EXPECT_GT(std::abs(j.at("loss_deranged") - j.at("loss")), 1e-6);
  const Numbers other =
      numbers_of(trainer({"eval", at("run"), "--json", "--batch", "64", "--shards", at("data/*.tar"), "--threads", "2"}).out);
  EXPECT_NEAR(other.at("loss") / j.at("loss"), 1, 1e-12);
  EXPECT_FALSE(other.contains("loss_deranged"));
  ASSERT_EQ(train("still", {"--set", "optim.lr=1e-300", "--set", "optim.weight_decay=0", "--set", "run.steps=8"}).exit_code, 0);
  const Numbers still = numbers_of(trainer({"eval", at("still"), "--json"}).out);
  double loss = 0;
  for (const Numbers& m : metrics("still")) loss += m.at("loss") * m.at("tokens");
  EXPECT_NEAR(loss / 1675 / still.at("loss"), 1, 1e-12);
}

TEST_F(TrainerTest, PlansAndShowsWithoutTraining) {
  const CommandResult plan = train("run", {"--plan", "--ranks", "4", "--json"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  std::istringstream lines(plan.out);
  std::string line;
  std::getline(lines, line);
  const Numbers j = numbers_of(line);
  EXPECT_EQ(j.at("dp"), 4);
  EXPECT_EQ(j.at("parameters"), 598'176);
  EXPECT_EQ(j.at("trained"), 598'048);
  EXPECT_EQ(j.at("moment_bytes"), 598'048 / 4 * 2 * 8);
  int ranks = 0;
  while (std::getline(lines, line)) EXPECT_EQ(numbers_of(line).at("dp"), ranks++);
  EXPECT_EQ(ranks, 4);
  const CommandResult dry = train("run", {"--dry-run"}, 2);
  EXPECT_EQ(dry.exit_code, 0) << dry.err;
  EXPECT_NE(dry.out.find("rank 1  000004"), std::string::npos) << dry.out;
  EXPECT_NE(dry.out.find("64 samples in the data set"), std::string::npos) << dry.out;

  const CommandResult apart = train("run", {"--plan", "--ranks", "6", "--json", "--set", "parallel.encoder.dp=2"});
  ASSERT_EQ(apart.exit_code, 0) << apart.err;
  std::istringstream of_six(apart.out);
  std::vector<Numbers> six;
  while (std::getline(of_six, line)) six.push_back(numbers_of(line));
  ASSERT_EQ(six.size(), 7U);
  EXPECT_EQ(six[0].at("dp"), 4);
  EXPECT_EQ(six[0].at("encoder_tp"), 1);
  EXPECT_EQ(six[6].at("encoder_dp"), 1);
  EXPECT_LT(six[5].at("memory_bytes"), six[1].at("memory_bytes"));
  const CommandResult three = train("run", {"--dry-run", "--set", "parallel.encoder.tp=1"}, 3);
  EXPECT_EQ(three.exit_code, 0) << three.err;
  EXPECT_NE(three.out.find("ranks 2 to 2 are the encoder's: tp 1 x dp 1"), std::string::npos) << three.out;
  EXPECT_NE(three.out.find("rank 1  000004"), std::string::npos) << three.out;
  EXPECT_FALSE(std::filesystem::exists(at("run")));
}

}  // namespace
}  // namespace mm::loop
