// SPDX-License-Identifier: Apache-2.0
// What is saved under one layout loads under any other, byte by byte.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <set>

#include "checkpoint/folder.h"
#include "checkpoint/hash.h"
#include "checkpoint/index.h"
#include "checkpoint/step_reader.h"
#include "tests/checkpoint/support.h"

namespace mm::checkpoint::test {
namespace {

TEST(RoundTrip, AnyLayoutLoadsUnderAnyOther) {
  Random random(11);
  for (int round = 0; round < 60; ++round) {
    const TemporaryFolder folder;
    const State state = random_state(random, 12, 2000);
    const int ranks = static_cast<int>(1 + random() % 4);
    const Facts facts = {{"cursor", std::to_string(round)}, {"seed", "18446744073709551615"}};
    const SaveResult r = save(folder / "run", state, random_layout(random, state, ranks), round, facts);
    ASSERT_TRUE(r.committed) << r.error;
    uint64_t bytes = 0;
    for (const Tensor& t : state) bytes += t.bytes.size();
    EXPECT_EQ(r.bytes, bytes);
    EXPECT_TRUE(verify_step(folder / "run/checkpoints/" + step_name(round), round, false, [](uint64_t) {}).empty());
    for (int again = 0; again < 3; ++again) {
      const Layout layout = random_layout(random, state, static_cast<int>(1 + random() % 4));
      ASSERT_EQ(load_and_compare(
                    folder / "run", [&](int64_t) -> const State& { return state; }, layout),
                round);
    }
    EXPECT_EQ(read_manifest(folder / "run/checkpoints/" + step_name(round), round).facts, facts);
  }
}

TEST(RoundTrip, TensorsOfManyBlocks) {
  Random random(12);
  const TemporaryFolder folder(TemporaryFolder::On::disk);
  State state;
  state.push_back({"wide", "param", DType::float32, {1100, 3000}, {}});
  state.push_back({"just a block", "param", DType::uint8, {static_cast<int64_t>(block_bytes)}, {}});
  state.push_back({"a byte more", "v", DType::uint8, {static_cast<int64_t>(block_bytes) + 1}, {}});
  for (Tensor& t : state) t.bytes.resize(static_cast<size_t>(elements(t.shape)) * size_of(t.dtype));
  state = other_values(state, 5);
  ASSERT_TRUE(save(folder / "run", state, random_layout(random, state, 3), 1).committed);
  for (int round = 0; round < 4; ++round) {
    EXPECT_EQ(load_and_compare(
                  folder / "run", [&](int64_t) -> const State& { return state; }, random_layout(random, state, 1 + round)),
              1);
  }
}

TEST(RoundTrip, ReadsOnlyTheBlocksThatHoldTheBox) {
  const TemporaryFolder folder;
  State state{{"w", "param", DType::uint8, {static_cast<int64_t>(8 * block_bytes)}, std::vector<char>(8 * block_bytes, 'x')}};
  ASSERT_TRUE(save(folder / "run", state, {{{0, {{0}, state[0].shape}}}}, 1).committed);
  std::atomic<uint64_t> bytes = 0;
  io::set_hook([&](const io::Operation& o) {
    if (o.op == io::Op::read && o.path.ends_with(".h5")) bytes += o.bytes;
    return io::Fault{};
  });
  const int64_t begin = static_cast<int64_t>(3 * block_bytes) - 10;
  EXPECT_EQ(load_and_compare(folder / "run", [&](int64_t) -> const State& { return state; }, {{{0, {{begin}, {20}}}}}), 1);
  io::set_hook({});
  EXPECT_GE(bytes, 2 * block_bytes);
  EXPECT_LE(bytes, 2 * block_bytes + 20000);  // and index, structure, hashes
}

TEST(Names, NoTwoShareAPathAndAllComeBack) {
  const std::vector<std::string> names = {"a/0", "a",      "a/",   "/a",       "x//y", "x/y", "./x",   "x",
                                          ".",   "..",     "...",  "",         "%",    "%2F", "a%2F0", " ",
                                          "é",   "日本語", "a\nb", "\xff\xfe", "A",    "t",   "mm"};
  State state;
  std::set<std::string> components;
  for (const std::string& name : names) {
    components.insert(path_component(name));
    EXPECT_EQ(path_component(name).find('/'), std::string::npos);
    for (const char* role : {"param", "m/v"}) state.push_back({name, role, DType::float32, {3}, std::vector<char>(12)});
  }
  EXPECT_EQ(components.size(), names.size());
  EXPECT_FALSE(components.contains(".") || components.contains("..") || components.contains(""));
  state = other_values(state, 3);
  Random random(4);
  const TemporaryFolder folder;
  ASSERT_TRUE(save(folder / "run", state, random_layout(random, state, 3), 7).committed);
  EXPECT_EQ(load_and_compare(
                folder / "run", [&](int64_t) -> const State& { return state; }, random_layout(random, state, 2)),
            7);
}

TEST(RoundTrip, AHundredThousandTensors) {
  const TemporaryFolder folder;
  constexpr size_t many = 100'000;
  std::vector<uint16_t> values(many), loaded(many);
  std::vector<ConstView> saved;
  std::vector<View> wanted;
  for (size_t i = 0; i < many; ++i) {
    values[i] = static_cast<uint16_t>(i * 7);
    const std::string name = "blocks." + std::to_string(i) + ".bias";
    saved.push_back({name, "param", DType::bfloat16, {1}, {{0}, {1}}, &values[i]});
    wanted.push_back({name, "param", DType::bfloat16, {1}, {{0}, {1}}, &loaded[i]});
  }
  SelfGroup group;
  RunFolder run(folder / "run", true);
  for (int64_t step = 1; step <= 2; ++step) {
    const SaveResult r = run.save(group, step, saved, {});
    ASSERT_TRUE(r.committed) << r.error;
    std::printf("step %ld in %.2f s\n", static_cast<long>(step), r.seconds);  // the second has its structure from the first
  }
  ASSERT_EQ(run.load_newest(group, [&](int64_t, const Facts&) { return wanted; })->step, 2);
  EXPECT_EQ(values, loaded);
}

TEST(Folder, OnlyCommittedNamesCount) {
  const TemporaryFolder folder;
  EXPECT_THROW(RunFolder(folder / "none", false), Error);
  const RunFolder run(folder / "run", true);
  EXPECT_EQ(load_and_compare(folder / "run", [](int64_t) -> const State& { throw std::runtime_error("no step"); }, {{}, {}}),
            -1);
  for (const char* name : {".step-0000001.abc", "step-1", "step-00000001", "step-0000002x", "step-", "lost", "step--000001"}) {
    std::filesystem::create_directory(run.path() + "/" + name);
  }
  std::ofstream(run.path() + "/step-0000009") << "a file";
  EXPECT_TRUE(run.list().empty());
  EXPECT_EQ(step_of_name("step-12345678"), 12345678);
  EXPECT_EQ(step_of_name("step-0000000"), 0);
}

TEST(Retain, KeepsTheNewestThatHold) {
  Random random(6);
  const TemporaryFolder folder;
  const State state = random_state(random, 4, 100);
  const Layout layout = random_layout(random, state, 2);
  for (int64_t step = 1; step <= 6; ++step) ASSERT_TRUE(save(folder / "run", state, layout, step).committed);
  const RunFolder run(folder / "run", false);
  std::filesystem::remove(run.path() + "/step-0000006/rank-00001.h5");
  ASSERT_EQ(mark_bad(run.list()[1], "for the test"), "");
  run_ranks(2, [&](Group& group) { EXPECT_EQ(RunFolder(folder / "run", false).retain(group, 2), ""); });
  std::vector<int64_t> steps;
  for (const StepInfo& s : run.list()) steps.push_back(s.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{6, 5, 4, 3}));
  EXPECT_EQ(load_and_compare(
                folder / "run", [&](int64_t) -> const State& { return state; }, layout),
            4);
}

TEST(Save, WhatTheCallerGotWrongIsAnErrorOnAllRanksAndNothingIsCommitted) {
  const TemporaryFolder folder;
  State state{{"w", "param", DType::float32, {8}, std::vector<char>(32)}};
  const Layout hole = {{{0, {{0}, {4}}}}, {{0, {{5}, {3}}}}};
  EXPECT_NE(save(folder / "run", state, hole, 1).error.find("1 of 8 elements are in no box"), std::string::npos);
  const Layout overlap = {{{0, {{0}, {5}}}}, {{0, {{4}, {4}}}}};
  EXPECT_NE(save(folder / "run", state, overlap, 1).error.find("overlap"), std::string::npos);
  RunFolder run(folder / "run", false);
  run_ranks(2, [&](Group& group) {
    RunFolder mine(folder / "run", false);
    float value = 0;
    const ConstView outside{"w", "param", DType::float32, {8}, {{6}, {3}}, &value};
    const ConstView none{"w", "param", DType::float32, {1}, {{0}, {1}}, nullptr};
    EXPECT_FALSE(mine.save(group, 1, group.rank() == 1 ? std::vector{outside} : std::vector<ConstView>{}, {}).committed);
    EXPECT_FALSE(mine.save(group, 1, {none}, {}).committed);
    EXPECT_FALSE(mine.save(group, -1, {}, {}).committed);
    EXPECT_FALSE(mine.save(group, 1, {}, {{"not UTF-8", "\xff"}}).committed);
  });
  EXPECT_TRUE(run.list().empty());
  for (const auto& entry : std::filesystem::directory_iterator(run.path()))
    EXPECT_TRUE(entry.path().filename().string().starts_with("epoch-")) << entry.path();
}

TEST(Load, AViewThatTheStepHasNotIsTheCallersMistakeAndMarksNothing) {
  const TemporaryFolder folder;
  State state{{"w", "param", DType::float32, {8}, std::vector<char>(32)}};
  const Layout whole = {{{0, {{0}, {8}}}}, {}};
  ASSERT_TRUE(save(folder / "run", state, whole, 1).committed);
  State other = state;
  for (const auto& change : std::vector<std::function<void(Tensor&)>>{
           [](Tensor& t) { t.name = "missing"; }, [](Tensor& t) { t.role = "m"; }, [](Tensor& t) { t.dtype = DType::int64; },
           [](Tensor& t) {
             t.shape = {8, 1};
           }}) {
    other = state;
    change(other[0]);
    const Layout layout = {{}, {{0, {Extents(other[0].shape.size(), 0), other[0].shape}}}};
    try {
      load_and_compare(
          folder / "run", [&](int64_t) -> const State& { return other; }, layout);
      ADD_FAILURE() << "loaded " << other[0].name;
    } catch (const Error& e) {
      EXPECT_EQ(e.status, exit_status::usage) << e.what();
      EXPECT_NE(std::string(e.what()).find(other[0].name), std::string::npos) << e.what();
    }
  }
  EXPECT_FALSE(RunFolder(folder / "run", false).list()[0].bad);
}

}  // namespace
}  // namespace mm::checkpoint::test
