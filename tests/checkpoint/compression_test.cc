// SPDX-License-Identifier: Apache-2.0
// Compressed payload: the same bytes come back under any layout, through our reader and through HDF5's own filter; what is wrong
// is found; a file does not depend on the number of threads.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "checkpoint/compression_choice.h"
#include "checkpoint/folder.h"
#include "checkpoint/frame.h"
#include "checkpoint/hash.h"
#include "checkpoint/rank_file_writer.h"
#include "checkpoint/step_reader.h"
#include "common/files.h"
#include "tests/checkpoint/support.h"

namespace mm::checkpoint::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Values as weights have them: normal, so that signs and exponents repeat.
void normal_values(Tensor& t, uint64_t seed) {
  t.bytes.resize(static_cast<size_t>(elements(t.shape)) * size_of(t.dtype));
  Random random(seed);
  std::normal_distribution<float> normal(0, 0.02f);
  const size_t width = size_of(t.dtype);
  for (size_t at = 0; at < t.bytes.size(); at += width) {
    const float value = normal(random);
    if (width >= 4)
      std::memcpy(&t.bytes[at], &value, 4);
    else
      std::memcpy(&t.bytes[at], reinterpret_cast<const char*>(&value) + 4 - width, width);
  }
}

// Rows longer than a block, blocks of several rows, ends that are not full, and what stays as it is beside them.
State large_state(uint64_t seed) {
  State state = {{"rows", "param", DType::float32, {1100, 1000}, {}},
                 {"long", "m", DType::bfloat16, {5'000'001}, {}},
                 {"deep", "param", DType::bfloat16, {2, 900, 3000}, {}},
                 {"thin", "v", DType::float32, {90'000, 3}, {}},
                 {"narrow", "param", DType::uint8, {3, 70'000}, {}},
                 {"small", "param", DType::float32, {7}, {}},
                 {"scalar", "param", DType::float64, {}, {}},
                 {"empty", "param", DType::float32, {0, 5}, {}}};
  for (Tensor& t : state) normal_values(t, seed++);
  return state;
}

SaveResult save_compressed(const std::string& run, const State& state, const Layout& layout, int64_t step, int cut_axis = -1) {
  std::vector<SaveResult> results(layout.size());
  RunFolder(run, true);
  run_ranks(static_cast<int>(layout.size()), [&](Group& group) {
    const Share share = share_of(state, layout[static_cast<size_t>(group.rank())]);
    std::vector<ConstView> shown = const_views(state, share);
    for (ConstView& v : shown) v.cut_axis = cut_axis;
    RunFolder folder(run, false);
    folder.compress(Compression::on);
    results[static_cast<size_t>(group.rank())] = folder.save(group, step, shown, {});
  });
  return results[0];
}

std::string step_path(const std::string& run, int64_t step) {
  return run + "/checkpoints/" + step_name(step);
}

TEST(Compression, ComesBackUnderAnyLayoutAndTakesLess) {
  const State state = large_state(1);
  Random random(71);
  for (const int cut_axis : {-1, 0, 1}) {
    const TemporaryFolder folder;
    const SaveResult saved = save_compressed(folder / "run", state, random_layout(random, state, 3), 5, cut_axis);
    ASSERT_TRUE(saved.committed) << saved.error;
    const Manifest m = read_manifest(step_path(folder / "run", 5), 5);
    EXPECT_LT(m.stored(), m.payload() * 9 / 10);
    uint64_t sizes = 0;
    for (const FileRecord& f : m.files) sizes += f.size;
    EXPECT_LT(sizes, m.payload() * 9 / 10);
    EXPECT_TRUE(verify_step(step_path(folder / "run", 5), 5, false, [](uint64_t) {}).empty());
    for (const int ranks : {1, 4}) {
      EXPECT_EQ(load_and_compare(
                    folder / "run", [&](int64_t) -> const State& { return state; }, random_layout(random, state, ranks)),
                5);
    }
  }
}

TEST(Compression, SmallTensorsOfManyShapesComeBack) {
  Random random(72);
  for (int round = 0; round < 15; ++round) {
    const TemporaryFolder folder;
    State state = random_state(random, 6, 200'000);
    for (Tensor& t : state) normal_values(t, random());
    ASSERT_TRUE(save_compressed(folder / "run", state, random_layout(random, state, 2), 1, round % 3).committed);
    EXPECT_EQ(load_and_compare(
                  folder / "run", [&](int64_t) -> const State& { return state; }, random_layout(random, state, 3)),
              1);
  }
}

TEST(Compression, AFileDoesNotDependOnTheNumberOfThreads) {
  const TemporaryFolder folder;
  const State state = large_state(2);
  std::vector<Placed> all;
  for (size_t i = 0; i < state.size(); ++i) all.push_back({i, {Extents(state[i].shape.size(), 0), state[i].shape}});
  const Share share = share_of(state, all);
  std::vector<std::string> files;
  for (const int threads : {1, 2, 5}) {
    WriteOptions options;
    options.threads = threads;
    options.compress = true;
    write_rank_file(folder / std::to_string(threads), {"0123456789abcdef", 1, 0, 1}, const_views(state, share), options);
    files.push_back(read_file(folder / std::to_string(threads)));
  }
  for (const std::string& file : files) {
    ASSERT_EQ(file.size(), files[0].size());
    const auto at = std::mismatch(file.begin(), file.end(), files[0].begin()).first - file.begin();
    EXPECT_EQ(static_cast<size_t>(at), file.size()) << "the first byte that differs";
  }
}

TEST(Compression, AWriteThatFailsFailsTheSaveAndTheStepBeforeLoads) {
  const TemporaryFolder folder;
  const State state = large_state(3), other = large_state(30);
  Random random(73);
  const Layout two = random_layout(random, state, 2);
  ASSERT_TRUE(save_compressed(folder / "run", state, two, 1).committed);
  for (const int nth : {1, 5, 20}) {
    std::atomic<int> count = 0;
    io::set_hook([&](const io::Operation& o) {
      const bool counts = o.op == io::Op::write && o.path.ends_with("rank-00001.h5");
      return io::Fault{counts && ++count == nth ? ENOSPC : 0};
    });
    const SaveResult r = save_compressed(folder / "run", other, two, 2);
    io::set_hook({});
    EXPECT_FALSE(r.committed);
    EXPECT_NE(r.error.find("No space left on device"), std::string::npos) << r.error;
    EXPECT_EQ(load_and_compare(
                  folder / "run", [&](int64_t) -> const State& { return state; }, two),
              1);
  }
}

TEST(Compression, EveryBitFlipIsFound) {
  const TemporaryFolder folder;
  State state = {{"w", "param", DType::float32, {300, 400}, {}}};
  normal_values(state[0], 4);
  const Layout layout = {{{0, {{0, 0}, {300, 400}}}}};
  ASSERT_TRUE(save_compressed(folder / "run", state, layout, 1).committed);
  const std::string path = step_path(folder / "run", 1) + "/rank-00000.h5", good = read_file(path);
  Random random(74);
  for (int round = 0; round < 200; ++round) {
    std::string bytes = good;
    const size_t at = random() % bytes.size(), bit = random() % 8;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    EXPECT_FALSE(verify_step(step_path(folder / "run", 1), 1, false, [](uint64_t) {}).empty()) << "bit " << bit << " of " << at;
  }
}

// Frames that want more room than a block has, that are cut short, or whose inside is anything at all.
TEST(Compression, AFrameThatLiesIsRefused) {
  std::vector<char> data(300'000), frame, room(data.size());
  Random random(75);
  for (size_t i = 0; i < data.size(); i += 8) {
    const uint64_t word = random() & 0x0f0f0f0f0f0f0f0f;
    std::memcpy(&data[i], &word, 8);
  }
  make_frame(data.data(), data.size(), 4, frame);
  ASSERT_EQ(open_frame(frame.data(), frame.size(), room.data(), room.size()), "");
  EXPECT_TRUE(room == data);
  for (const size_t holds : {data.size() - 4, data.size() + 4, size_t{2'000'000'000}}) {
    std::vector<char> bomb = frame;
    const auto value = static_cast<uint32_t>(holds);
    std::memcpy(&bomb[4], &value, 4);  // a frame's second word: what it becomes
    EXPECT_NE(open_frame(bomb.data(), bomb.size(), room.data(), room.size()), "");
  }
  EXPECT_NE(open_frame(frame.data(), frame.size() - 1, room.data(), room.size()), "");
  EXPECT_NE(open_frame(frame.data(), 8, room.data(), room.size()), "");
  // The room has canaries behind it in a sanitizer's build.
  for (int round = 0; round < 2000; ++round) {
    std::vector<char> lie = frame;
    for (auto n = 1 + random() % 4; n > 0; --n) lie[random() % std::min<size_t>(lie.size(), round % 2 ? 200 : lie.size())] = static_cast<char>(random());
    open_frame(lie.data(), lie.size(), room.data(), room.size());
  }
}

TEST(Compression, IsChosenWhereTheLinkIsSlowerThanTheCores) {
  EXPECT_FALSE(is_worth_compressing(0, {200e6, 0.7}));        // not measured
  EXPECT_TRUE(is_worth_compressing(50e6, {200e6, 0.7}));      // the link is the limit
  EXPECT_FALSE(is_worth_compressing(500e6, {200e6, 0.7}));    // the cores are
  EXPECT_TRUE(is_worth_compressing(500e6, {16 * 200e6, 0.7}));
  EXPECT_FALSE(is_worth_compressing(50e6, {200e6, 0.97}));    // too little to gain
  State state = {{"w", "param", DType::bfloat16, {4096, 512}, {}}};
  normal_values(state[0], 5);
  const Share share = share_of(state, {{0, {{0, 0}, {4096, 512}}}});
  const std::vector<ConstView> shown = const_views(state, share);
  const CompressionRate rate = sample_compression(shown, 2);
  EXPECT_GT(rate.bytes_per_second, 0);
  EXPECT_LT(rate.ratio, 0.9);
  EXPECT_GT(rate.ratio, 0.3);
  CompressionChoice choice;
  EXPECT_FALSE(choice.next(true, shown, 1));
  choice.set(Compression::automatic);
  EXPECT_FALSE(choice.next(true, shown, 1)) << "the link is measured first";
  choice.written(false, 4 << 20, 4000);  // 1 kB/s
  int compressed = 0;
  for (int save = 0; save < 20; ++save) {
    EXPECT_FALSE(choice.next(false, shown, 1)) << "stays on the node";
    const bool now = choice.next(true, shown, 1);
    compressed += now ? 1 : 0;
    choice.written(now, 4 << 20, now ? 2800 : 4000);
  }
  EXPECT_EQ(compressed, 18) << "each tenth measures the link";
  choice.written(false, uint64_t{1} << 50, 1);  // as fast as nothing else
  EXPECT_FALSE(choice.next(true, shown, 1));
}

// As other programs read it: h5py through the plugin of filter 32001, and the reader among the examples.
TEST(Compression, H5pyReadsWhatIsCompressed) {
  const char* available = "import h5py, sys; sys.exit(not h5py.h5z.filter_avail(32001))";
  if (run_command({"/usr/bin/python3", "-c", available}).status != 0)
    GTEST_SKIP() << "skipped: no python3-h5py or no HDF5 plugin for filter 32001";
  const TemporaryFolder folder;
  const State state = large_state(6);
  Random random(76);
  ASSERT_TRUE(save_compressed(folder / "run", state, random_layout(random, state, 2), 1).committed);
  std::vector<std::string> command = {"/usr/bin/python3", "tests/checkpoint/read_rank_file.py"};
  for (const char* file : {"/rank-00000.h5", "/rank-00001.h5"}) command.push_back(step_path(folder / "run", 1) + file);
  const Ran ran = run_command(command);
  ASSERT_EQ(ran.status, 0) << ran.err;
  std::istringstream lines(ran.out);
  uint64_t bytes = 0, expected = 0;
  for (std::string line; std::getline(lines, line);) {
    const json j = json::parse(line);
    for (const Tensor& t : state) {
      if (t.name != j[0] || t.role != j[1]) continue;
      const std::vector<char> right = bytes_of(t, {j[4].get<Extents>(), j[5].get<Extents>()});
      const std::string text = j[6];
      ASSERT_EQ(text.size(), 2 * right.size());
      for (size_t i = 0; i < right.size(); i += 1 + i / 1000) {  // all of the first, then fewer
        ASSERT_EQ(std::stoi(text.substr(2 * i, 2), nullptr, 16), static_cast<unsigned char>(right[i])) << t.name << " byte " << i;
      }
      bytes += right.size();
    }
  }
  for (const Tensor& t : state) expected += t.bytes.size();
  EXPECT_EQ(bytes, expected);
  const char* script =
      "import sys, hashlib\n"
      "sys.path.insert(0, 'etc/examples')\n"
      "import read_checkpoint\n"
      "read = {(n if isinstance(n, str) else n.decode()): v for n, v in read_checkpoint.read(sys.argv[1]).items()}\n"
      "print(hashlib.sha256(read['rows'].tobytes()).hexdigest())\n"
      "print(hashlib.sha256(open(sys.argv[2], 'rb').read()).hexdigest())\n";
  std::ofstream(folder / "rows", std::ios::binary).write(state[0].bytes.data(), static_cast<std::streamsize>(state[0].bytes.size()));
  const Ran example = run_command({"/usr/bin/python3", "-B", "-c", script, step_path(folder / "run", 1), folder / "rows"});
  ASSERT_EQ(example.status, 0) << example.err;
  EXPECT_EQ(example.out.substr(0, 64), example.out.substr(65, 64));
}

TEST(Compression, ToolsAndTiersWorkWithIt) {
  const TemporaryFolder folder;
  const State state = large_state(7);
  Random random(77);
  const Layout layout = random_layout(random, state, 2);
  ASSERT_TRUE(save(folder / "run", state, layout, 3, {}).committed);
  const auto ckpt = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), mm_ckpt());
    return run_command(arguments);
  };
  Ran ran = ckpt({"reshard", "--to", folder / "small", "--ranks", "3", "--compress", folder / "run", "--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_LT(json::parse(ran.out).at("stored").get<uint64_t>(), json::parse(ran.out).at("bytes").get<uint64_t>() * 9 / 10);
  ran = ckpt({"info", folder / "small"});
  EXPECT_NE(ran.out.find("compressed to"), std::string::npos) << ran.out;
  EXPECT_EQ(ckpt({"verify", folder / "small"}).status, 0);
  EXPECT_EQ(ckpt({"diff", folder / "run", folder / "small"}).status, 0);
  for (const char* of : {"run", "small"})
    ASSERT_EQ(ckpt({"export", "--safetensors", folder / (std::string("hf-") + of), folder / of}).status, 0);
  EXPECT_TRUE(read_file(folder / "hf-run/model.safetensors") == read_file(folder / "hf-small/model.safetensors"));
  ran = ckpt({"reshard", "--to", folder / "again", "--ranks", "2", folder / "small"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ckpt({"diff", folder / "run", folder / "again"}).status, 0);

  // Copies on the node's disk are the same bytes, and stand in for files of the shared one that are damaged.
  RunFolder(folder / "tiers", true);
  const auto with_tiers = [&](const std::function<void(RunFolder&, Group&)>& body) {
    run_ranks(2, [&](Group& group) {
      RunFolder run(folder / "tiers", false);
      Tiers tiers;
      tiers.node_folder = folder / ("node" + std::to_string(group.rank()));
      tiers.node_name = "n" + std::to_string(group.rank());
      EXPECT_TRUE(run.use_tiers(group, tiers).empty());
      run.compress(Compression::on);
      body(run, group);
    });
  };
  with_tiers([&](RunFolder& run, Group& group) {
    const Share share = share_of(state, layout[static_cast<size_t>(group.rank())]);
    const SaveResult r = run.save(group, 1, const_views(state, share), {});
    EXPECT_TRUE(r.committed && r.tiers == "node shared") << r.error << r.tiers;
  });
  fs::resize_file(step_path(folder / "tiers", 1) + "/rank-00000.h5", 10'000);
  with_tiers([&](RunFolder& run, Group& group) {
    Share share;
    const auto loaded = run.load_newest(group, [&](int64_t, const Facts&) {
      share = empty_share(state, layout[static_cast<size_t>(group.rank())]);
      return views(state, share);
    });
    EXPECT_TRUE(loaded && loaded->skipped.empty());
    EXPECT_TRUE(share.buffers == share_of(state, layout[static_cast<size_t>(group.rank())]).buffers);
  });
}

}  // namespace
}  // namespace mm::checkpoint::test
