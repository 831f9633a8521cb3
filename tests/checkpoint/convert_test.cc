// SPDX-License-Identifier: Apache-2.0
// Steps that become other things and come back: Hugging Face folders, other numbers of files, one HDF5 file that shows all.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "checkpoint/dtype.h"
#include "checkpoint/folder.h"
#include "checkpoint/interval.h"
#include "checkpoint/step_reader.h"
#include "common/safetensors/writer.h"
#include "common/files.h"
#include "tests/checkpoint/support.h"

namespace mm::checkpoint::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string hex(const std::vector<char>& bytes) {
  std::string out;
  for (const char c : bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    out += two;
  }
  return out;
}

// A tensor of every type that safetensors has, and awkward shapes and names.
State every_type() {
  State state;
  for (uint8_t number = 0; dtype_of_number(number); ++number) {
    const DType t = *dtype_of_number(number);
    state.push_back({"layer/" + name_of(t), "param", t, {3, 5}, std::vector<char>(15 * size_of(t))});
  }
  state.push_back({"scalar é", "param", DType::float32, {}, std::vector<char>(4)});
  state.push_back({"empty", "param", DType::bfloat16, {0, 7}, {}});
  state.push_back({"long", "param", DType::uint8, {100001}, std::vector<char>(100001)});
  return other_values(state, 61);
}

class Convert : public ::testing::Test {
 protected:
  void commit(const State& state, int ranks) {
    Random random(62);
    ASSERT_TRUE(save(folder_ / "run", state, random_layout(random, state, ranks), 7, {{"model_config", config_}}).committed);
  }
  Ran ckpt(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), mm_ckpt());
    return run_command(arguments);
  }
  void expect_loads(const std::string& run, const State& state, int64_t step) {
    Random random(63);
    EXPECT_EQ(load_and_compare(
                  run, [&](int64_t) -> const State& { return state; }, random_layout(random, state, 2)),
              step);
    EXPECT_TRUE(verify_step(run + "/checkpoints/" + step_name(step), step, false, [](uint64_t) {}).empty());
  }
  TemporaryFolder folder_;
  const std::string config_ = "{\"model_type\": \"x\"}\n";
};

TEST_F(Convert, ExportAndImportKeepEveryByte) {
  const State state = every_type();
  commit(state, 3);
  for (const std::string size : {"5", "0.00003"}) {  // one file, and shards of 30 kB
    const std::string out = folder_ / "hf", back = folder_ / ("back" + size);
    Ran ran = ckpt({"export", "--safetensors", out, "--shard-size", size, folder_ / "run", "--json"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(json::parse(ran.out).at("tensors"), state.size());
    EXPECT_EQ(fs::exists(out + "/model.safetensors"), size == "5");
    EXPECT_EQ(fs::exists(out + "/model.safetensors.index.json"), size != "5");
    ran = ckpt({"import", "--safetensors", out, "--ranks", "3", "--step", "9", back});
    ASSERT_EQ(ran.status, 0) << ran.err;
    expect_loads(back, state, 9);
    EXPECT_EQ(read_manifest(back + "/checkpoints/" + step_name(9), 9).facts.at("model_config"), config_);
    ran = ckpt({"diff", folder_ / "run", back});
    EXPECT_EQ(ran.status, 0) << ran.out;
    ran = ckpt({"export", "--safetensors", folder_ / "again", "--shard-size", size, back});
    for (const auto& entry : fs::directory_iterator(out)) {
      const std::string name = entry.path().filename();
      EXPECT_TRUE(read_file(entry.path()) == read_file(folder_ / ("again/" + name))) << name;
    }
  }
}

TEST_F(Convert, HostileSafetensorsAreRefused) {
  const auto write = [&](const std::string& header) {
    const uint64_t n = header.size();
    fs::create_directories(folder_ / "hf");
    std::ofstream(folder_ / "hf/model.safetensors", std::ios::binary)
        << std::string(reinterpret_cast<const char*>(&n), 8) << header << std::string(16, 'x');
  };
  for (const char* header : {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,17]}})",
                             R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]}})",
                             R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", R"([[[[[[[[[[[[[[[)",
                             R"({"a":{"dtype":"X9","shape":[16],"data_offsets":[0,16]}})"}) {
    write(header);
    const Ran ran = ckpt({"import", "--safetensors", folder_ / "hf", folder_ / "new"});
    EXPECT_EQ(ran.status, 2) << header;
    EXPECT_NE(ran.err.find("model.safetensors"), std::string::npos) << ran.err;
  }
  fs::remove(folder_ / "hf/model.safetensors");
  EXPECT_EQ(ckpt({"import", "--safetensors", folder_ / "hf", folder_ / "new"}).status, 2);
}

TEST_F(Convert, ReshardKeepsEverythingInAnyNumberOfFiles) {
  Random random(64);
  State state = random_state(random, 20, 3000);
  for (Tensor& t : every_type()) state.push_back(t);
  commit(state, 3);
  for (const std::string ranks : {"1", "2", "7"}) {
    const std::string to = ranks == "2" ? folder_ / "run" : folder_ / ("other" + ranks);
    const Ran ran = ckpt({"reshard", "--to", to, "--ranks", ranks, folder_ / "run"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    expect_loads(to, state, 7);
    const Manifest m = read_manifest(to + "/checkpoints/" + step_name(7), 7);
    EXPECT_EQ(std::to_string(m.files.size()), ranks);
    for (const FileRecord& f : m.files) EXPECT_LE(f.payload, m.payload() / m.files.size() + 8 * m.files.size());
    EXPECT_EQ(m.facts.at("model_config"), config_);
  }
}

TEST_F(Convert, TheIndexShowsEveryTensorWhole) {
  if (run_command({"/usr/bin/python3", "-c", "import h5py"}).status != 0) GTEST_SKIP() << "skipped: no python3-h5py";
  State state = every_type();
  std::erase_if(state, [](const Tensor& t) { return t.dtype == DType::bfloat16 || t.dtype == DType::float16; });
  commit(state, 3);
  ASSERT_EQ(ckpt({"verify", "--write-index", folder_ / "run"}).status, 0);
  EXPECT_EQ(ckpt({"verify", folder_ / "run"}).status, 0);
  const char* script =
      "import h5py, sys, json\n"
      "with h5py.File(sys.argv[1]) as f:\n"
      "    for d in f['param'].values():\n"
      "        print(json.dumps([d.attrs['name'] if isinstance(d.attrs['name'], str) else d.attrs['name'].decode(), "
      "d[()].tobytes().hex()]))\n";
  const Ran ran = run_command({"/usr/bin/python3", "-c", script, folder_ / "run/checkpoints/step-0000007/index.h5"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  std::map<std::string, std::string> read;
  std::istringstream lines(ran.out);
  for (std::string line; std::getline(lines, line);) {
    const json j = json::parse(line);
    read[j[0]] = j[1];
  }
  EXPECT_EQ(read.size(), state.size());
  for (const Tensor& t : state) EXPECT_EQ(read[t.name], hex(t.bytes)) << t.name;
}

TEST_F(Convert, PinnedStepsAndEveryMthStay) {
  const State state{{"w", "param", DType::uint8, {2}, {'a', 'b'}}};
  const Layout layout = {{{0, {{0}, {2}}}}};
  for (int64_t step = 1; step <= 8; ++step) ASSERT_TRUE(save(folder_ / "run", state, layout, step).committed);
  ASSERT_EQ(ckpt({"prune", "--pin", "1", folder_ / "run"}).status, 0);
  run_ranks(1, [&](Group& g) { EXPECT_EQ(RunFolder(folder_ / "run", false).retain(g, Keep{2, 3}), ""); });
  const auto left = [&] {
    std::vector<int64_t> out;
    for (const StepInfo& s : RunFolder(folder_ / "run", false).list()) out.push_back(s.step);
    return out;
  };
  EXPECT_EQ(left(), (std::vector<int64_t>{8, 7, 6, 3, 1}));
  EXPECT_EQ(ckpt({"prune", "--unpin", "1", "--keep", "1", "--every", "6", folder_ / "run"}).status, 0);
  EXPECT_EQ(left(), (std::vector<int64_t>{8, 6}));
}

// Against a search over all intervals, of the expected loss of exponential failures.
TEST(Interval, IsNearTheBestOfAllIntervals) {
  const auto waste = [](double t, double cost,
                        double mtbf) {  // expected time per useful second, Daly's equation 20 without restart
    return mtbf * (std::exp((t + cost) / mtbf) - 1) / t;
  };
  for (const double cost : {0.1, 1.0, 30.0, 300.0}) {
    for (const double mtbf : {3600.0, 86400.0, 1e7}) {
      const double ours = best_interval({cost, 0, 0, mtbf}).seconds;
      double best = 1e300;
      for (double t = 1; t < 1e7; t *= 1.01) best = std::min(best, waste(t, cost, mtbf));
      EXPECT_LE(waste(ours, cost, mtbf), best * 1.001) << cost << " " << mtbf;
    }
  }
  EXPECT_EQ(best_interval({1, 500, 0, 3600}).seconds, 500);
  EXPECT_NEAR(job_mtbf_seconds(default_node_mtbf_hours, 2048) * 419, 54 * 86400, 1);
}

TEST_F(Convert, IntervalExplainsItself) {
  Ran ran = ckpt({"interval", "--stall", "2", "--nodes", "2048", "--step-time", "10", "--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  const json j = json::parse(ran.out);
  EXPECT_NEAR(j.at("mtbf").get<double>(), 54 * 86400 / 419.0, 1);
  EXPECT_EQ(j.at("steps").get<int64_t>(), std::llround(j.at("seconds").get<double>() / 10));
  EXPECT_EQ(ckpt({"interval"}).status, 2);
  commit({{"w", "param", DType::uint8, {2}, {'a', 'b'}}}, 1);
  std::ofstream(folder_ / "run/metrics.jsonl") << "{\"step_s\": 0.5, \"save_s\": 0.25}\n{\"step_s\": 0.5}\nnot json\n";
  ran = ckpt({"interval", folder_ / "run", "--nodes", "4"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out.find("A save stops training for 0.25 s"), std::string::npos) << ran.out;
}

}  // namespace
}  // namespace mm::checkpoint::test
