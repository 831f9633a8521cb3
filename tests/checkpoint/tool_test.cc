// SPDX-License-Identifier: Apache-2.0
// The files in the eyes of others: h5py, h5dump, a safetensors reader of its own, and mm-ckpt.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "checkpoint/folder.h"
#include "checkpoint/index.h"
#include "tests/checkpoint/support.h"

namespace mm::checkpoint::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(json::parse(line));
  return out;
}

std::string hex(const std::vector<char>& bytes) {
  std::string out;
  for (const char c : bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    out += two;
  }
  return out;
}

const Tensor& find(const State& state, const std::string& name, const std::string& role) {
  for (const Tensor& t : state) {
    if (t.name == name && t.role == role) return t;
  }
  throw std::runtime_error("no tensor " + name);
}

class Tool : public ::testing::Test {
 protected:
  Tool() : random_(41), state_(random_state(random_, 12, 500)), layout_(random_layout(random_, state_, 3)) {
    state_.push_back({"é/0 d", "param", DType::bfloat16, {}, {'\x80', '\x3f'}});
    layout_[2].push_back({state_.size() - 1, {{}, {}}});
  }
  Ran ckpt(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), mm_ckpt());
    return run_command(arguments);
  }
  std::string run() const { return folder_ / "run"; }
  std::string step(int64_t n) const { return run() + "/checkpoints/" + step_name(n); }
  void commit(int64_t n, const State& state) {
    ASSERT_TRUE(save(run(), state, layout_, n, {{"model_config", config_}, {"step", std::to_string(n)}}).committed);
  }
  void flip_payload(int64_t n) {
    const fs::path path = step(n) + "/rank-00001.h5";
    std::fstream f(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>(fs::file_size(path) / 2);
    f.seekg(at);
    const int c = f.get();
    f.seekp(at);
    f.put(static_cast<char>(c ^ 1));
  }

  TemporaryFolder folder_;
  Random random_;
  State state_;
  Layout layout_;
  const std::string config_ = "{\"model_type\": \"x\",\n \"n\": 1.50}\n";
};

TEST_F(Tool, H5pyReadsEveryTensor) {
  if (run_command({"/usr/bin/python3", "-c", "import h5py"}).status != 0) GTEST_SKIP() << "skipped: no python3-h5py";
  commit(1, state_);
  const Ran ran = run_command({"/usr/bin/python3", "tests/checkpoint/read_rank_file.py", step(1) + "/rank-00000.h5",
                               step(1) + "/rank-00001.h5", step(1) + "/rank-00002.h5"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  uint64_t bytes = 0, expected = 0;
  for (const json& j : lines_of(ran.out)) {
    const Tensor& t = find(state_, j[0], j[1]);
    const Box box{j[4].get<Extents>(), j[5].get<Extents>()};
    EXPECT_EQ(j[2], name_of(t.dtype));
    EXPECT_EQ(j[3].get<Extents>(), t.shape);
    EXPECT_EQ(j[6], hex(bytes_of(t, box))) << t.name;
    bytes += bytes_of(t, box).size();
  }
  for (const Tensor& t : state_) expected += t.bytes.size();
  EXPECT_EQ(bytes, expected);
}

// The reader among the examples.
TEST_F(Tool, TheExampleReaderReadsWholeTensors) {
  if (run_command({"/usr/bin/python3", "-c", "import h5py"}).status != 0) GTEST_SKIP() << "skipped: no python3-h5py";
  commit(1, state_);
  const char* script =
      "import sys, json\n"
      "sys.path.insert(0, 'etc/examples')\n"
      "import read_checkpoint\n"
      "for name, value in read_checkpoint.read(sys.argv[1]).items():\n"
      "    print(json.dumps([name if isinstance(name, str) else name.decode(), value.tobytes().hex()]))\n";
  const Ran ran = run_command({"/usr/bin/python3", "-B", "-c", script, step(1)});
  ASSERT_EQ(ran.status, 0) << ran.err;
  std::map<std::string, std::string> read;
  for (const json& j : lines_of(ran.out)) read[j[0]] = j[1];
  for (const Tensor& t : state_) {
    if (t.role != "param") continue;
    std::vector<char> bytes = t.bytes;
    if (t.dtype == DType::bfloat16) {  // the reader widens it to float32
      bytes.assign(t.bytes.size() * 2, 0);
      for (size_t i = 0; i < t.bytes.size(); ++i) bytes[i / 2 * 4 + 2 + i % 2] = t.bytes[i];
    }
    EXPECT_EQ(read.at(t.name), hex(bytes)) << t.name;
  }
}

TEST_F(Tool, H5dumpReadsEveryFile) {
  if (run_command({"h5dump", "--version"}).status != 0) GTEST_SKIP() << "skipped: no h5dump";
  commit(1, state_);
  std::string all;
  for (const char* file : {"/rank-00000.h5", "/rank-00001.h5", "/rank-00002.h5"}) {
    const Ran ran = run_command({"h5dump", step(1) + file});
    EXPECT_EQ(ran.status, 0) << ran.err;
    all += ran.out;
  }
  for (const Tensor& t : state_) {
    if (!t.bytes.empty()) {
      EXPECT_NE(all.find("GROUP \"" + path_component(t.name) + "\""), std::string::npos) << t.name;
    }
  }
}

// Reads a safetensors file with nothing of the library.
State read_safetensors(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(in), {}};
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  const std::string data = file.substr(8 + length);
  const json header = json::parse(file.substr(8, length));
  EXPECT_EQ(header.at("__metadata__").at("format"), "pt");
  const std::map<std::string, DType> types = {
      {"F64", DType::float64}, {"F32", DType::float32}, {"BF16", DType::bfloat16}, {"I64", DType::int64}, {"U8", DType::uint8}};
  State state;
  std::map<uint64_t, uint64_t> places;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    Tensor t{name, "param", types.at(entry.at("dtype").get<std::string>()), entry.at("shape").get<Extents>(), {}};
    const auto begin = entry.at("data_offsets")[0].get<uint64_t>(), end = entry.at("data_offsets")[1].get<uint64_t>();
    EXPECT_EQ(end - begin, static_cast<uint64_t>(elements(t.shape)) * size_of(t.dtype));
    EXPECT_EQ((8 + length + begin) % size_of(t.dtype), 0u);
    t.bytes.assign(data.begin() + static_cast<std::ptrdiff_t>(begin), data.begin() + static_cast<std::ptrdiff_t>(end));
    if (end > begin) places[begin] = end;
    state.push_back(std::move(t));
  }
  uint64_t at = 0;  // without a hole, to the end
  for (const auto& [begin, end] : places) {
    EXPECT_EQ(begin, at);
    at = end;
  }
  EXPECT_EQ(at, data.size());
  return state;
}

TEST_F(Tool, ExportWritesWhatHuggingFaceReads) {
  commit(1, state_);
  commit(2, other_values(state_, 7));
  for (const bool newest : {false, true}) {
    std::vector<std::string> arguments = {"export", "--safetensors", folder_ / "out/a", run()};
    if (!newest) arguments.insert(arguments.end(), {"--step", "1"});
    const Ran ran = ckpt(arguments);
    ASSERT_EQ(ran.status, 0) << ran.err;
    const State expected = newest ? other_values(state_, 7) : state_;
    size_t params = 0;
    for (const Tensor& t : expected) params += t.role == "param" ? 1 : 0;
    const State read = read_safetensors(folder_ / "out/a/model.safetensors");
    EXPECT_EQ(read.size(), params);
    for (const Tensor& t : read) {
      const Tensor& right = find(expected, t.name, "param");
      EXPECT_EQ(t.dtype, right.dtype);
      EXPECT_EQ(t.shape, right.shape);
      EXPECT_TRUE(t.bytes == right.bytes) << t.name;
    }
    std::ifstream config(folder_ / "out/a/config.json");
    EXPECT_EQ((std::string{std::istreambuf_iterator<char>(config), {}}), config_);
  }
  flip_payload(2);
  std::ifstream before(folder_ / "out/a/model.safetensors");
  const std::string kept{std::istreambuf_iterator<char>(before), {}};
  const Ran ran = ckpt({"export", "--safetensors", folder_ / "out/a", run()});
  if (ran.status != 0) {  // the flip may have hit a tensor of another role, which is not read
    EXPECT_EQ(ran.status, 1);
    std::ifstream after(folder_ / "out/a/model.safetensors");
    EXPECT_EQ((std::string{std::istreambuf_iterator<char>(after), {}}), kept);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "out/a"), {}), 2);
}

TEST_F(Tool, VerifyTellsGoodFromBad) {
  commit(1, state_);
  commit(2, state_);
  EXPECT_EQ(ckpt({"verify", run()}).status, 0);
  EXPECT_EQ(ckpt({"verify", "--all", run()}).status, 0);
  flip_payload(2);
  Ran ran = ckpt({"verify", run(), "--json"});
  EXPECT_EQ(ran.status, 1);
  const json line = lines_of(ran.out).at(0);
  EXPECT_EQ(line.at("step"), 2);
  EXPECT_EQ(line.at("ok"), false);
  EXPECT_NE(line.at("problems")[0].get<std::string>().find("rank-00001.h5"), std::string::npos);
  EXPECT_EQ(ckpt({"verify", run(), "--step", "1"}).status, 0);
  EXPECT_EQ(ckpt({"verify", "--all", run()}).status, 1);
  ASSERT_EQ(mark_bad(RunFolder(run(), false).list()[0], "for the test"), "");
  EXPECT_EQ(ckpt({"verify", run()}).status, 0);  // what would be loaded is step 1
  fs::remove(step(1) + "/rank-00000.h5");
  EXPECT_EQ(ckpt({"verify", "--quick", run()}).status, 1);
  ran = ckpt({"verify", folder_ / "none"});
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.err.find("none"), std::string::npos);
  fs::create_directories(folder_ / "empty/checkpoints");
  EXPECT_EQ(ckpt({"verify", folder_ / "empty"}).status, 1);
}

TEST_F(Tool, DiffComparesWhateverTheLayouts) {
  commit(1, state_);
  layout_ = random_layout(random_, state_, 2);
  commit(2, state_);
  Ran ran = ckpt({"diff", run() + "@1", run()});
  EXPECT_EQ(ran.status, 0) << ran.out;
  State other;
  for (const double value : {1.0, 1.5}) {
    other = {{"w", "param", DType::float64, {2}, std::vector<char>(16)}};
    std::memcpy(&other[0].bytes[8], &value, 8);
    layout_ = {{{0, {{0}, {2}}}}};
    commit(value == 1.0 ? 3 : 4, other);
  }
  ran = ckpt({"diff", run() + "@3", run() + "@4", "--json"});
  EXPECT_EQ(ran.status, 1);
  const json line = lines_of(ran.out).at(0);
  EXPECT_EQ(line.at("different"), 1);
  EXPECT_EQ(line.at("max_abs"), 0.5);
  EXPECT_EQ(ckpt({"diff", run() + "@1", run() + "@4"}).status, 1);
  EXPECT_EQ(ckpt({"diff", run() + "@1", run() + "@9"}).status, 2);
}

TEST_F(Tool, ListInfoAndPrune) {
  for (int64_t n = 1; n <= 4; ++n) commit(n, state_);
  flip_payload(4);
  std::vector<json> lines = lines_of(ckpt({"ls", run(), "--json"}).out);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].at("step"), 4);
  EXPECT_EQ(lines[0].at("files"), 3);
  lines = lines_of(ckpt({"info", run(), "--step", "2", "--json", "--tensors"}).out);
  EXPECT_EQ(lines.at(0).at("facts").at("model_config").at("n"), 1.5);
  EXPECT_GE(lines.at(0).at("tensors").size(), 8u);
  EXPECT_EQ(ckpt({"info", run()}).status, 0);
  EXPECT_EQ(ckpt({"prune", run(), "--keep", "2", "--dry-run"}).status, 0);
  EXPECT_EQ(RunFolder(run(), false).list().size(), 4u);
  EXPECT_EQ(ckpt({"prune", run(), "--keep", "2"}).status, 0);
  std::vector<int64_t> left;
  for (const StepInfo& s : RunFolder(run(), false).list()) left.push_back(s.step);
  EXPECT_EQ(left, (std::vector<int64_t>{4, 3, 2}));  // 4 does not verify and does not count
}

TEST_F(Tool, WrongUseIsStatusTwo) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"nonsense"},
                                             {"verify"},
                                             {"verify", run(), "--all", "--step", "1"},
                                             {"prune", run()},
                                             {"prune", run(), "--keep", "0"},
                                             {"reshard", run()},
                                             {"import", run()},
                                             {"export", run()}}) {
    EXPECT_EQ(ckpt(arguments).status, 2);
  }
  EXPECT_EQ(ckpt({"--help"}).status, 0);
  EXPECT_EQ(ckpt({"verify", "--help"}).status, 0);
  EXPECT_EQ(ckpt({"--version"}).out.substr(0, 8), "mm-ckpt ");
}

}  // namespace
}  // namespace mm::checkpoint::test
