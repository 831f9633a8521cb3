// SPDX-License-Identifier: Apache-2.0
// Whatever happens to the bytes of a committed step is found by verify and by load, and the step before loads instead.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "checkpoint/folder.h"
#include "checkpoint/hash.h"
#include "checkpoint/step_reader.h"
#include "common/files.h"
#include "tests/checkpoint/support.h"

namespace mm::checkpoint::test {
namespace {

namespace fs = std::filesystem;

void spit(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

// Two steps of a run of three ranks, another run, and pristine copies of all.
class Damage : public ::testing::Test {
 protected:
  Damage()
      : random_(21),
        one_(random_state(random_, 9, 400)),
        two_(other_values(one_, 22)),
        layout_(random_layout(random_, one_, 3)) {
    EXPECT_TRUE(save(folder_ / "run", one_, layout_, 1).committed);
    EXPECT_TRUE(save(folder_ / "run", two_, layout_, 2).committed);
    EXPECT_TRUE(save(folder_ / "other", two_, layout_, 2).committed);
    fs::copy(folder_ / "run", folder_ / "pristine", fs::copy_options::recursive);
  }

  std::string file(int64_t step, const std::string& name, const std::string& run = "run") const {
    return folder_ / (run + "/checkpoints/" + step_name(step) + "/" + name);
  }
  void restore() {
    fs::remove_all(folder_ / "run");
    fs::copy(folder_ / "pristine", folder_ / "run", fs::copy_options::recursive);
  }
  void expect_found(const std::string& what) {
    EXPECT_FALSE(verify_step(folder_ / ("run/checkpoints/" + step_name(2)), 2, false, [](uint64_t) {}).empty()) << what;
    std::vector<std::string> skipped;
    EXPECT_EQ(load_and_compare(
                  folder_ / "run", [&](int64_t step) -> const State& { return step == 1 ? one_ : two_; }, layout_, &skipped),
              1)
        << what;
    EXPECT_EQ(skipped.size(), 1u) << what;
    EXPECT_TRUE(fs::exists(file(2, ".bad"))) << what;
    EXPECT_FALSE(fs::exists(file(1, ".bad"))) << what;
    restore();
  }

  TemporaryFolder folder_;
  Random random_;
  State one_, two_;
  Layout layout_;
  const std::vector<std::string> files_ = {"manifest.json", "rank-00000.h5", "rank-00001.h5", "rank-00002.h5"};
};

TEST_F(Damage, EveryBitFlipIsFound) {
  for (int round = 0; round < 1000; ++round) {
    const std::string path = file(2, files_[random_() % files_.size()]);
    std::string bytes = read_file(path);
    const size_t at = random_() % bytes.size(), bit = random_() % 8;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
    spit(path, bytes);
    expect_found("bit " + std::to_string(bit) + " of byte " + std::to_string(at) + " of " + path);
  }
}

TEST_F(Damage, EveryWrongLengthIsFound) {
  for (int round = 0; round < 60; ++round) {
    const std::string path = file(2, files_[random_() % files_.size()]);
    const std::string bytes = read_file(path);
    const size_t n = random_() % 4 == 0 ? 0 : random_() % bytes.size();
    spit(path, round % 3 == 0 ? bytes + bytes.substr(0, n + 1) : bytes.substr(0, n));
    expect_found(path + " of another length");
  }
}

TEST_F(Damage, MissingSwappedAndForeignFilesAreFound) {
  for (const std::string& name : files_) {
    fs::remove(file(2, name));
    expect_found("no " + name);
    fs::remove(file(2, name));
    fs::create_directory(file(2, name));
    expect_found("a folder " + name);
    fs::remove(file(2, name));
    fs::create_symlink("nowhere", file(2, name));
    expect_found("a link " + name);
    fs::copy_file(file(1, name), file(2, name), fs::copy_options::overwrite_existing);
    expect_found("of step 1: " + name);
    // another run's step 2, with the same values under the same layout
    fs::copy_file(file(2, name, "other"), file(2, name), fs::copy_options::overwrite_existing);
    expect_found("of another run: " + name);
  }
  fs::rename(file(2, "rank-00000.h5"), file(2, "x"));
  fs::rename(file(2, "rank-00001.h5"), file(2, "rank-00000.h5"));
  fs::rename(file(2, "x"), file(2, "rank-00001.h5"));
  expect_found("swapped rank files");
}

TEST_F(Damage, NothingValidIsAnErrorAndNeverAFreshStart) {
  for (const int64_t step : {1, 2}) fs::resize_file(file(step, "rank-00001.h5"), 100);
  for (int again = 0; again < 2; ++again) {  // the second time both are marked
    try {
      load_and_compare(
          folder_ / "run", [&](int64_t step) -> const State& { return step == 1 ? one_ : two_; }, layout_);
      ADD_FAILURE() << "loaded";
    } catch (const Error& e) {
      EXPECT_EQ(e.status, exit_status::data);
      EXPECT_NE(std::string(e.what()).find("none of 2 committed steps loads"), std::string::npos) << e.what();
    }
  }
}

TEST_F(Damage, AReadThatFailsSkipsTheStepButMarksNothing) {
  const std::string failing = file(2, "rank-00001.h5");
  io::set_hook([&](const io::Operation& o) { return io::Fault{o.op == io::Op::read && o.path == failing ? EIO : 0}; });
  std::vector<std::string> skipped;
  EXPECT_EQ(load_and_compare(
                folder_ / "run", [&](int64_t step) -> const State& { return step == 1 ? one_ : two_; }, layout_, &skipped),
            1);
  io::set_hook({});
  ASSERT_EQ(skipped.size(), 1u);
  EXPECT_NE(skipped[0].find("rank-00001.h5: Input/output error"), std::string::npos) << skipped[0];
  EXPECT_EQ(load_and_compare(
                folder_ / "run", [&](int64_t step) -> const State& { return step == 1 ? one_ : two_; }, layout_),
            2);
}

TEST_F(Damage, AnIndexThatLiesIsRefusedEvenIfItsHashesHold) {
  const Manifest m = read_manifest(folder_ / ("run/checkpoints/" + step_name(2)), 2);
  const FileRecord& record = m.files[0];
  const std::string blob = read_file(file(2, "rank-00000.h5")).substr(record.index_offset, record.index_bytes);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string lie = blob;
    for (auto n = 1 + random_() % 4; n > 0; --n) lie[random_() % lie.size()] = static_cast<char>(random_());
    if (random_() % 4 == 0) lie.resize(random_() % lie.size());
    try {
      const RankIndex index = decode_index(lie, record.size, record.hash_count, "x");
      for (const Entry& e : index.entries) {
        ASSERT_LE(e.offset + e.bytes(), record.size);
        ASSERT_LE(e.first_block + e.blocks().count(), record.hash_count);
      }
      structure_ranges(index.entries, record.size);
    } catch (const BadStep&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 10000);
}

// HDF5 files that others made, as a rank file under an honest manifest and under one whose sizes fit: rejected, and never given
// to the library.
TEST_F(Damage, ForeignHdf5FilesAreRejected) {
  const fs::path corpus = "../shared/corpus/hdf5";
  if (!fs::is_directory(corpus)) GTEST_SKIP() << "skipped: no ../shared/corpus/hdf5";
  int files = 0;
  for (const auto& entry : fs::directory_iterator(corpus)) {
    if (!entry.is_regular_file()) continue;
    ++files;
    fs::copy_file(entry.path(), file(2, "rank-00000.h5"), fs::copy_options::overwrite_existing);
    expect_found(entry.path());
    const std::string content = read_file(entry.path());
    Manifest m = read_manifest(folder_ / ("run/checkpoints/" + step_name(2)), 2);
    m.files[0].size = content.size();
    m.files[0].index_offset = 0;
    m.files[0].index_bytes = content.size();
    m.files[0].hash_count = 0;
    m.files[0].index_hash = hash128(content);
    fs::copy_file(entry.path(), file(2, "rank-00000.h5"), fs::copy_options::overwrite_existing);
    spit(file(2, "manifest.json"), text_of(m));
    expect_found(entry.path());
  }
  EXPECT_GT(files, 0);
}

}  // namespace
}  // namespace mm::checkpoint::test
