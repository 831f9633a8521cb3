// SPDX-License-Identifier: Apache-2.0
// The outcomes of expected.tsv, for pictures and tars.
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "common/files.h"
#include "tests/trainer/data/support.h"
#include "trainer/data/dataset.h"
#include "trainer/data/image/image.h"

namespace mm::data {
namespace {

using namespace test;

struct Row {
  std::string file, outcome, reference;
};

std::vector<Row> rows(const std::string& prefix) {
  std::ifstream table(corpus() + "/expected.tsv");
  std::vector<Row> found;
  for (std::string line; std::getline(table, line);) {
    std::vector<std::string> cells;
    std::istringstream in(line);
    for (std::string cell; std::getline(in, cell, '\t');) cells.push_back(cell);
    if (cells.size() > 4 && cells[0].starts_with(prefix)) found.push_back({cells[0], cells[1], cells[4]});
  }
  return found;
}

bool near(const std::vector<double>& mean, const std::string& reference, const std::string& name) {
  const size_t at = reference.find(name + "=");
  double want[3];
  if (at == std::string::npos ||
      std::sscanf(reference.c_str() + at + name.size() + 1, "%lf/%lf/%lf", &want[0], &want[1], &want[2]) != 3)
    return false;
  for (size_t k = 0; k < 3; ++k)
    if (std::abs(mean[k] - want[k]) > 3) return false;
  return true;
}

TEST(Corpus, Pictures) {
  if (corpus().empty()) GTEST_SKIP() << "the corpus is not there";
  int seen = 0;
  for (const Row& row : rows("images/")) {
    ++seen;
    try {
      const Image image = decode_image(read_file(corpus() + "/" + row.file));
      EXPECT_NE(row.outcome, "reject") << row.file;
      if (row.outcome != "ok") continue;
      std::vector<double> mean(3);
      for (size_t i = 0; i < image.rgb.size(); ++i) mean[i % 3] += image.rgb[i] / (static_cast<double>(image.rgb.size()) / 3);
      EXPECT_TRUE(row.reference.starts_with(std::to_string(image.width) + "x" + std::to_string(image.height) + " "))
          << row.file;
      EXPECT_TRUE(near(mean, row.reference, "mean_rgb_on_white")) << row.file;
    } catch (const Error& error) {
      EXPECT_NE(row.outcome, "ok") << row.file << ": " << error.what();
    }
  }
  EXPECT_GT(seen, 40);
}

TEST(Corpus, Tars) {
  if (corpus().empty()) GTEST_SKIP() << "the corpus is not there";
  for (const Row& row : rows("tars/")) {
    try {
      const Dataset dataset = Dataset::open_one(corpus() + "/" + row.file);
      EXPECT_NE(row.outcome, "reject") << row.file;
      for (int64_t i = 0; i < dataset.samples(); ++i) {
        EXPECT_FALSE(dataset.key(i).starts_with("._")) << row.file;
        for (const Part& part : dataset.parts(i)) EXPECT_EQ(static_cast<int64_t>(dataset.read(i, part).size()), part.size);
      }
      if (row.file == "tars/mpdata.tar") {
        EXPECT_EQ(dataset.samples(), 100);
      }
      if (row.file == "tars/compressed.tar") {
        EXPECT_EQ(dataset.samples(), 3);
      }
    } catch (const Error& error) {
      EXPECT_NE(row.outcome, "ok") << row.file << ": " << error.what();
      EXPECT_NE(std::string(error.what()).find(row.file), std::string::npos) << "the shard is not named: " << error.what();
    }
  }
}

}  // namespace
}  // namespace mm::data
