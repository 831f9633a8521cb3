// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/checks.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/error.h"

namespace mm::spank {
namespace {

Stated sbatch(const std::vector<std::string>& words) {
  return parse_arguments(Client::sbatch, words);
}

std::string refusal(const std::string& spec, const std::vector<std::string>& words) {
  try {
    const std::optional<Request> request = read_request(spec);
    return "accepted with " + std::to_string(check_submission(request->job, sbatch(words)));
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(Submission, AcceptsWhatFitsAndWhatIsLeftOpen) {
  EXPECT_EQ(refusal("tp=2,pp=2", {"-N4", "--ntasks-per-node=2"}), "accepted with 8");
  EXPECT_EQ(refusal("tp=2,spares=1", {"-N5", "--ntasks-per-node=2"}), "accepted with 8");
  EXPECT_EQ(refusal("tp=2,spares=1", {"-N5", "-n10"}), "accepted with 8");
  EXPECT_EQ(refusal("tp=8", {}), "accepted with 0");
  EXPECT_EQ(refusal("tp=8", {"-N3"}), "accepted with 0");  // the script may start any number of tasks
  EXPECT_EQ(refusal("tp=3", {"-N2-4", "--ntasks-per-node=2"}), "accepted with 0");
  EXPECT_EQ(refusal("tp=3,spares=1", {"-n8"}), "accepted with 0");  // spare nodes of unknown size
  EXPECT_EQ(refusal("tp=3", {"--unknown", "x", "-N2", "-n8"}), "accepted with 0");
}

TEST(Submission, VerboseIsNoKeyOfAJob) {
  const std::optional<Request> request = read_request("tp=2,verbose,pp=2");
  ASSERT_TRUE(request);
  EXPECT_TRUE(request->record.verbose);
  EXPECT_EQ(request->record.value, "tp=2,verbose,pp=2");
  EXPECT_EQ(request->record.spec, "tp=2,pp=2");
  EXPECT_EQ(read_request("verbose")->record.spec, "auto");
  EXPECT_TRUE(read_inherited_request(request->record)->record.verbose);
  EXPECT_FALSE(read_request("tp=2")->record.verbose);
  EXPECT_FALSE(read_request("off,verbose"));
}

TEST(Submission, RefusesAContradictionWithItsNumbers) {
  EXPECT_NE(refusal("tp=3", {"-N2", "-n8"}).find("8 tasks are not a multiple of tp 3 x cp 1 x pp 1 = 3"), std::string::npos);
  const std::string spare = refusal("tp=4,spares=1", {"-N4", "--ntasks-per-node=2"});
  EXPECT_NE(spare.find("6 tasks are not a multiple of tp 4"), std::string::npos) << spare;
  EXPECT_NE(spare.find("of 8 tasks, 2 on 1 spare node"), std::string::npos) << spare;
  EXPECT_NE(refusal("spares=2", {"-N2", "--ntasks-per-node=1"}).find("recovery.spares 2 of 2 nodes leaves none"),
            std::string::npos);
  EXPECT_NE(refusal("auto", {"-N1", ":", "-N1", "s"}).find("heterogeneous"), std::string::npos);
}

TEST(Submission, GlobalBatchOfAJobFile) {
  const std::string file = testing::TempDir() + "batch_job.toml";
  std::ofstream(file) << "[model]\npath = \"m\"\n[data]\nshards = \"d/*.tar\"\nglobal_batch = 6\n";
  EXPECT_EQ(refusal(file, {"-n3"}), "accepted with 3");
  EXPECT_NE(refusal(file, {"-n4"}).find("dp 4 (4 tasks) does not divide data.global_batch 6"), std::string::npos);
  std::filesystem::remove(file);
}

TEST(Request, OffIsNothingAndAFileIsAbsolute) {
  EXPECT_FALSE(read_request("off"));
  EXPECT_EQ(read_request("auto")->record.spec, "auto");
  const std::string file = testing::TempDir() + "x/../request_job.toml";
  std::filesystem::create_directories(testing::TempDir() + "x");
  std::ofstream(file)
      << "[model]\npath = \"m\"\n[data]\nshards = \"d/*.tar\"\n[parallel]\ntp = 2\n[recovery]\nhang_timeout = 7\n";
  std::optional<Request> r = read_request(file);
  EXPECT_EQ(r->record.value, file);
  EXPECT_EQ(r->record.spec, std::filesystem::path(file).lexically_normal().string());
  EXPECT_EQ(r->record.hang_timeout, 7);
  r->record.tasks = 4;
  // A step sees the file as it is now; where it is gone, as it was.
  std::ofstream(file) << "[model]\npath = \"m\"\n[data]\nshards = \"d/*.tar\"\n[parallel]\ntp = 4\n";
  EXPECT_EQ(read_inherited_request(r->record)->record.tp, 4);
  EXPECT_EQ(read_inherited_request(r->record)->record.value, file);
  std::filesystem::remove(file);
  EXPECT_EQ(read_inherited_request(r->record)->record.tp, 2);
  EXPECT_EQ(read_inherited_request(r->record)->record.tasks, 4);
}

TEST(Step, HelpersAreLetThrough) {
  Record stated;
  stated.tasks = 8;
  Record open;
  const auto helper = [](const Record& r, int tasks, int nodes, bool inherited) {
    return is_helper(r, StepSize{tasks, nodes, inherited});
  };
  EXPECT_TRUE(helper(stated, 1, 4, true));
  EXPECT_TRUE(helper(stated, 4, 4, true));   // srun -N4 --ntasks-per-node=1 nvidia-smi
  EXPECT_FALSE(helper(stated, 8, 4, true));  // the training itself
  EXPECT_FALSE(helper(stated, 6, 4, true));
  EXPECT_TRUE(helper(open, 1, 4, true));
  EXPECT_FALSE(helper(open, 4, 4, true));
  EXPECT_FALSE(helper(stated, 1, 4, false));  // asked for on this srun
  EXPECT_THROW(check_step(read_request("tp=3")->job, 4), Error);
}

}  // namespace
}  // namespace mm::spank
