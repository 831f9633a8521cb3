// SPDX-License-Identifier: Apache-2.0
// Bad input and faults: each gets a message that names object and reason, and the exit status that says whether a restart can
// help.
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <regex>

#include "tests/trainer/loop/harness.h"
#include "trainer/data/tar.h"
#include "trainer/interop/safetensors.h"

namespace mm::loop {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

#define EXPECT_SAYS(result, text) EXPECT_NE((result).err.find(text), std::string::npos) << (result).err

void edit(const std::string& path, const std::function<void(std::string&)>& change) {
  std::string content = read_file(path);
  change(content);
  std::ofstream(path, std::ios::binary) << content;
}

TEST_F(TrainerTest, WrongUseIsStatusTwo) {
  const auto refused = [&](const std::vector<std::string>& more, const std::string& why, int ranks = 1) {
    const CommandResult r = train("run", more, ranks);
    EXPECT_EQ(r.exit_code, 2) << why;
    EXPECT_SAYS(r, why);
  };
  refused({"--set", "parallel.dtype=bfloat16"}, "this version does not support parallel.dtype");
  refused({"--set", "parallel.backend=cuda"}, "this version does not support parallel.backend");
  refused({"--set", "run.stops=3"}, "run.steps");
  refused({"--set", "data.global_batch=9"}, "does not divide data.global_batch 9", 2);
  refused({"--set", "model.path=" + at("nowhere")}, at("nowhere"));
  refused({"--set", "model.freeze=[\"nothing.*\"]"}, "matches no parameter");
  refused({"--set", "model.freeze=[\"*\"]"}, "nothing to train");
  refused({"--ranks", "4"}, "--ranks is for --plan");
  EXPECT_EQ(trainer({}).exit_code, 2);
  EXPECT_EQ(trainer({"--no-such-option"}).exit_code, 2);
  EXPECT_EQ(trainer({"eval", at("run")}).exit_code, 2);
  EXPECT_FALSE(fs::exists(at("run"))) << "nothing was begun";
}

TEST_F(TrainerTest, AModelFolderMustFitItsConfiguration) {
  const std::string file = at("model/model.safetensors");
  const interop::Safetensors model(file);
  std::map<std::string, std::vector<float>> values;
  for (const auto& [name, info] : model.tensors())
    model.read(name, (values[name] = std::vector<float>(static_cast<size_t>(info.elements()))).data());
  const auto write = [&](const std::string& without, const std::string& with) {
    std::vector<interop::TensorView> views;
    for (const auto& [name, data] : values)
      if (name != without) views.push_back({name, model.tensors().at(name).shape, data.data()});
    if (!with.empty()) views.push_back({with, {1}, values.begin()->second.data()});
    interop::write_safetensors(file, "F32", views);
  };
  write("multi_modal_projector.linear_1.weight", "");
  CommandResult r = train("run", {}, 2);
  EXPECT_EQ(r.exit_code, 2);
  EXPECT_SAYS(r, "tensor multi_modal_projector.linear_1.weight is missing");
  write("", "language_model.surplus");
  r = train("run");
  EXPECT_EQ(r.exit_code, 2);
  EXPECT_SAYS(r, "tensor language_model.surplus is none of the model");
  r = train("run", {"--set", "model.init=random", "--set", "run.steps=2"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
}

TEST_F(TrainerTest, DataThatCannotBeReadIsStatusThree) {
  CommandResult r = train("run", {"--set", "data.shards=" + at("data/none-*.tar")}, 2);
  EXPECT_EQ(r.exit_code, 3);
  EXPECT_SAYS(r, "no shard matches " + at("data/none-*.tar"));
  const std::string shard = at("data/shapes-00002.tar");
  fs::resize_file(shard, fs::file_size(shard) / 2 + 100);
  r = train("run");
  EXPECT_EQ(r.exit_code, 3);
  EXPECT_SAYS(r, "shapes-00002.tar");
  EXPECT_SAYS(r, "cut short");
}

TEST_F(TrainerTest, Case13APictureThatDoesNotDecodeIsReplacedAndNamed) {
  edit(at("data/shapes-00000.tar"), [](std::string& tar) {
    const size_t first = tar.find("IDAT");
    tar.replace(first + 4, 40, std::string(40, '\x55'));  // of 000000.png
  });
  const CommandResult one = train("one", {"--set", "run.steps=9"}), four = train("four", {"--set", "run.steps=9"}, 4);
  for (const CommandResult& r : {one, four}) {
    EXPECT_EQ(r.exit_code, 0) << r.err;
    EXPECT_SAYS(r, "000000");
    EXPECT_SAYS(r, "shapes-00000.tar");
  }
  EXPECT_EQ(metrics("one").back().at("rejected"), 1);
  ASSERT_EQ(metrics("one").size(), metrics("four").size());
  for (size_t i = 0; i < 9; ++i) EXPECT_NEAR(metrics("one")[i].at("loss") / metrics("four")[i].at("loss"), 1, 1e-9);
}

// Rank 0 has samples with pictures and labels, rank 1 text that is not trained; then a batch in which nothing is trained at
// all.
TEST_F(TrainerTest, Case01RanksWithoutPicturesOrLabelsStayInStep) {
  const std::string shapes = read_file(at("data/shapes-00000.tar"));
  std::string tar;
  const auto members =
      data::list_tar("shapes", static_cast<int64_t>(shapes.size()), [&](int64_t offset, char* to, size_t length) {
        const size_t n = std::min(length, shapes.size() - std::min(shapes.size(), static_cast<size_t>(offset)));
        std::memcpy(to, shapes.data() + offset, n);
        return n;
      });
  for (size_t i = 0; i < 4; ++i)
    data::append_tar_member(
        tar, members[i].name,
        std::string_view(shapes).substr(static_cast<size_t>(members[i].offset), static_cast<size_t>(members[i].size)));
  // The limit cuts these before the answer.
  const std::string long_question(80, 'q');
  for (int i = 0; i < 6; ++i)
    data::append_tar_member(
        tar, fmt::format("text{}.json", i),
        R"({"messages":[{"role":"user","content":")" + long_question + R"("},{"role":"assistant","content":"a"}]})");
  data::append_tar_end(tar);
  std::ofstream(at("mixed.tar"), std::ios::binary) << tar;
  const std::vector<std::string> mixed = {
      "--set",      "data.shards=" + at("mixed.tar"), "--set", "data.global_batch=4", "--set", "data.max_length=60", "--set",
      "run.steps=4"};
  ASSERT_EQ(train("one", mixed).exit_code, 0);
  const CommandResult two = train("two", mixed, 2);
  ASSERT_EQ(two.exit_code, 0) << two.err;
  const std::vector<Numbers> a = metrics("one"), b = metrics("two");
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i].at("loss"), b[i].at("loss"), 1e-9) << i;
  EXPECT_EQ(a[1].at("tokens"), 0);
  EXPECT_EQ(a[1].at("loss"), 0);
  EXPECT_EQ(a[1].at("grad_norm"), 0);
}

// Two pictures of 16 positions with 20 bytes between them: a limit of 40 falls into the second.
TEST_F(TrainerTest, Case06ASampleWhoseImageWouldBeCutIsDroppedAndNamed) {
  for (const char* name : {"000000.png", "000001.png"})
    ASSERT_EQ(run_command({"tar", "-xf", at("data/shapes-00000.tar"), "-C", folder_.string(), name}, 10s).exit_code, 0);
  std::string tar;
  for (const char* key : {"short", "long", "last"}) {
    const bool two = key == std::string("long");
    for (int picture = 0; picture < (two ? 2 : 1); ++picture)
      data::append_tar_member(tar, two ? fmt::format("{}.{}.png", key, picture) : fmt::format("{}.png", key),
                              read_file(at(fmt::format("00000{}.png", picture))));
    data::append_tar_member(tar, fmt::format("{}.json", key),
                            fmt::format(R"({{"text":"<image>{}{}"}})", std::string(20, 'a'), two ? "<image>" : ""));
  }
  data::append_tar_end(tar);
  std::ofstream(at("long.tar"), std::ios::binary) << tar;
  const CommandResult r = train("run", {"--set", "data.shards=" + at("long.tar"), "--set", "data.global_batch=2", "--set",
                                        "data.max_length=40", "--set", "run.steps=2"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_SAYS(r, "long");
  EXPECT_SAYS(r, "long.tar");
  EXPECT_GE(metrics("run").back().at("rejected"), 1);
}

TEST_F(TrainerTest, ALossThatIsNotFiniteIsStatusFour) {
  const CommandResult r = train(
      "run", {"--set", "optim.lr=1e6", "--set", "optim.clip=0", "--set", "optim.warmup=0", "--set", "parallel.dtype=float32"},
      2);
  EXPECT_EQ(r.exit_code, 4) << r.err;
  EXPECT_SAYS(r, "step 1: the ");
  EXPECT_SAYS(r, " of rank 0 on ");
}

TEST_F(TrainerTest, ARunIsNotContinuedWithSomethingElse) {
  ASSERT_EQ(train("run", {"--set", "run.steps=5"}).exit_code, 0);
  const auto refused = [&](const std::vector<std::string>& more, const std::string& why) {
    const CommandResult r = train("run", more);
    EXPECT_EQ(r.exit_code, 2) << why;
    EXPECT_SAYS(r, why);
  };
  refused({"--set", "parallel.dtype=float32"}, "dtype \"float64\" and the job asks for \"float32\"");
  refused({"--set", "data.shuffle=true"}, "data.shuffle was false");
  refused({"--set", "run.seed=2"}, "seed was 1");
  fs::remove(at("data/shapes-00003.tar"));
  refused({}, "the data set was");
  edit(at("model/config.json"), [](std::string& text) { text.replace(text.find("10000.0"), 7, "20000.0"); });
  refused({"--allow-data-change"}, "of another model");
  edit(at("model/config.json"), [](std::string& text) { text.replace(text.find("20000.0"), 7, "10000.0"); });
  const CommandResult r = train("run", {"--allow-data-change", "--set", "run.steps=7"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(metrics("run").size(), 7U);
}

TEST_F(TrainerTest, ADamagedCheckpointIsNeverUsed) {
  // The last step of a run is always saved; others may be left out where steps are faster than the disk.
  for (const char* steps : {"run.steps=15", "run.steps=20"}) ASSERT_EQ(train("run", {"--set", steps, "--set", "optim.min_lr_ratio=1"}).exit_code, 0);
  const std::vector<std::string> whole = numbers("run");
  const auto damage = [&](const char* step) {
    edit(at(fmt::format("run/checkpoints/{}/rank-00000.h5", step)), [](std::string& file) { file[file.size() / 2] ^= 1; });
  };
  damage("step-0000020");
  CommandResult r = train("run", {"--set", "optim.min_lr_ratio=1"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_SAYS(r, "checkpoint not used: step-0000020");
  EXPECT_SAYS(r, "continues at step 15 of 20");
  EXPECT_EQ(numbers("run"), whole);
  damage("step-0000015");
  damage("step-0000020");
  r = train("run");
  EXPECT_EQ(r.exit_code, 3) << r.err;
  EXPECT_SAYS(r, "none of");
  EXPECT_EQ(numbers("run"), whole) << "nothing of the run was touched";
}

TEST_F(TrainerTest, AFullDiskCostsACheckpointAndNothingElse) {
  if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    GTEST_SKIP() << "skipped: no private mounts here";
  const std::vector<std::string> long_enough = {"--json", "--set", "run.steps=150"};
  ASSERT_EQ(train("whole", long_enough).exit_code, 0);
  fs::create_directories(at("run"));
  ASSERT_EQ(::mount("none", at("run").c_str(), "tmpfs", 0, "size=64m"), 0);
  Child child(command("run", long_enough), at("err"));
  const auto until = [&](const auto& holds) {
    for (int64_t step = 0; !holds(); ++step)
      if (!child.wait_for_step(step)) return false;
    return true;
  };
  ASSERT_TRUE(until([&] {
    for (const fs::directory_entry& e : fs::directory_iterator(at("run")))
      if (e.path().filename() == "checkpoints")
        for (const fs::directory_entry& s : fs::directory_iterator(e))
          if (s.path().filename().string().starts_with("step-")) return true;
    return false;
  }));
  {
    std::ofstream filler(at("run/filler"), std::ios::binary);
    const std::string block(1 << 20, 'x');
    while (filler.write(block.data(), 1 << 20).flush()) continue;
  }
  EXPECT_TRUE(until([&] { return read_file(at("err")).find(" failed, the one of step ") != std::string::npos; }));
  fs::remove(at("run/filler"));
  while (child.line()) continue;
  const Ended ended = child.end();
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_TRUE(std::regex_search(ended.err, std::regex("checkpoint of step [0-9]+ failed, the one of step [0-9]+ stays: .*No space left on device")))
      << ended.err;
  EXPECT_EQ(numbers("run"), numbers("whole"));
  EXPECT_GE(metrics("run").back().at("failed_saves"), 1);
  EXPECT_EQ(trainer({"eval", at("run")}).exit_code, 0);
  EXPECT_EQ(::umount2(at("run").c_str(), MNT_DETACH), 0);
}

TEST_F(TrainerTest, ARankThatIsGoneIsNamedByTheOthers) {
  // mpirun would end the others itself; told to recover it leaves that to them.
  std::vector<std::string> argv = command("run", {"--json", "--set", "recovery.hang_timeout=1", "--set", "run.steps=1000"}, 4);
  argv.insert(argv.begin() + 1, {"--mca", "orte_enable_recovery", "1", "--mca", "btl", "vader,self"});
  Child child(argv, at("err"));
  ASSERT_TRUE(child.wait_for_step(2));
  const std::vector<pid_t> ranks = child.ranks();
  ASSERT_EQ(ranks.size(), 4U);
  ::kill(ranks[1], SIGKILL);
  const Ended ended = child.end(300s);
  EXPECT_SAYS(ended, "no answer within");
  EXPECT_SAYS(ended, "from rank 1 on ");
  EXPECT_SAYS(ended, "phase step ");
}

}  // namespace
}  // namespace mm::loop
