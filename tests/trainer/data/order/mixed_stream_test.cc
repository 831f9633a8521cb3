// SPDX-License-Identifier: Apache-2.0
// Streams of several data sets, and what becomes of samples that cannot be used.
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/trainer/data/support.h"
#include "trainer/data/image/image.h"
#include "trainer/data/stream.h"

namespace mm::data {
namespace {

using namespace test;

// Samples PREFIX-0 ...; every `bad`-th cannot be used.
void make_shard(const std::string& path, const std::string& prefix, int samples, int bad = 0) {
  std::vector<std::pair<std::string, std::string>> members;
  for (int i = 0; i < samples; ++i) {
    const std::string key = prefix + "-" + std::to_string(i);
    members.push_back({key + ".png", bad > 0 && i % bad == 0 ? "rubbish" : encode_png(plain(2, 2, 1, 2, 3))});
    members.push_back({key + ".txt", "a secret caption"});
  }
  write(path, make_tar(members));
}

StreamOptions options() {
  StreamOptions o;
  o.global_batch = 20;
  o.rule = {.image_size = 2, .positions_per_image = 1, .max_length = 64, .vocabulary = 264};
  return o;
}

std::vector<std::string> keys(StreamOptions o, int ranks, int threads, int64_t from, int64_t to) {
  std::vector<std::unique_ptr<Stream>> streams;
  for (int r = 0; r < ranks; ++r) {
    o.rank = r, o.ranks = ranks, o.threads = threads;
    streams.push_back(std::make_unique<Stream>(o));
  }
  std::vector<std::string> all;
  for (int64_t b = from; b < to; ++b)
    for (const auto& stream : streams)
      for (const Sample& s : stream->next(b)) all.push_back(s.key);
  return all;
}

TEST(MixedStream, HasItsWeightsWhateverTheRanksAndWithBadSamples) {
  const TemporaryFolder folder;
  make_shard(folder.path("a-0.tar"), "a", 30);
  make_shard(folder.path("a-1.tar"), "a2", 11);
  make_shard(folder.path("b.tar"), "b", 50, 7);
  make_shard(folder.path("c.tar"), "c", 3);
  StreamOptions o = options();
  o.mix = {{folder.path("a-*.tar"), 6}, {folder.path("b.tar"), 3.5}, {folder.path("c.tar"), 0.5}};
  const std::vector<std::string> want = keys(o, 1, 1, 0, 50);
  std::map<char, int> counts;
  for (const std::string& key : want) ++counts[key[0]];
  EXPECT_EQ(counts, (std::map<char, int>{{'a', 600}, {'b', 350}, {'c', 50}}));
  for (const int ranks : {2, 4})
    for (const int threads : {1, 8}) EXPECT_EQ(keys(o, ranks, threads, 0, 50), want);
  EXPECT_EQ(keys(o, 2, 2, 31, 50), std::vector<std::string>(want.begin() + 620, want.end()));
  EXPECT_EQ(Stream(o).samples(), 94);
}

TEST(BadSamples, AreListedOnceWithoutTheirText) {
  const TemporaryFolder folder;
  make_shard(folder.path("x.tar"), "private-name", 40, 10);
  StreamOptions o = options();
  o.shards = {folder.path("x.tar")};
  o.bad.list = folder.path("run/quarantine/dp-0.jsonl");
  const auto read = [&] {
    std::ifstream file(o.bad.list);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  };
  keys(o, 1, 2, 0, 4);
  const std::vector<std::string> lines = read();
  ASSERT_EQ(lines.size(), 4u);
  for (const std::string& line : lines) {
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json["shard"], folder.path("x.tar"));
    EXPECT_EQ(json["key_hash"].get<std::string>().size(), 16u);
    EXPECT_EQ(json["offset"].get<int64_t>() % 512, 0);
    EXPECT_NE(json["reason"].get<std::string>().find("png"), std::string::npos) << line;
    EXPECT_EQ(line.find("private-name"), std::string::npos);
    EXPECT_EQ(line.find("secret"), std::string::npos);
  }
  keys(o, 1, 1, 0, 4);  // a restart
  EXPECT_EQ(read().size(), 4u);
  // A list that cannot be written is no reason to stop.
  write(folder.path("file"), "");
  o.bad.list = folder.path("file/list");
  EXPECT_EQ(keys(o, 1, 1, 0, 4).size(), 80u);
}

TEST(BadSamples, AboveTheConfiguredShareEndTheRun) {
  const TemporaryFolder folder;
  make_shard(folder.path("x.tar"), "x", 600, 5);  // 20 %
  StreamOptions o = options();
  o.shards = {folder.path("x.tar")};
  EXPECT_NE(error_of(exit_status::data, [&] { keys(o, 1, 1, 0, 30); }).find("101 of 600 samples cannot be used"), std::string::npos);
  o.bad.max_percent = 25;
  EXPECT_EQ(keys(o, 1, 1, 0, 30).size(), 600u);
  // So many in a row, whatever their share.
  make_shard(folder.path("y.tar"), "y", 150, 1);
  o.shards = {folder.path("?.tar")};
  o.bad.max_percent = 100;
  o.shuffle = false;
  EXPECT_NE(error_of(exit_status::data, [&] { keys(o, 1, 1, 0, 37); }).find("100 samples in a row"), std::string::npos);
}

}  // namespace
}  // namespace mm::data
