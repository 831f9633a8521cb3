// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/stream.h"

#include <random>
#include <set>

#include "tests/trainer/data/support.h"
#include "trainer/data/image/image.h"

namespace mm::data {
namespace {

using namespace test;

constexpr int side = 16;

// Three shards of 37 samples in all. Numbers 3, 4 and 5 in a row, 20 and 36 (the last) cannot be used, each for another reason.
const std::set<int> bad = {3, 4, 5, 20, 36};

void make_shards(const TemporaryFolder& folder) {
  std::vector<std::pair<std::string, std::string>> members[3];
  for (int i = 0; i < 37; ++i) {
    auto& shard = members[i < 10 ? 0 : i < 12 ? 1 : 2];
    const std::string key = "s" + std::to_string(i);
    std::string picture = i % 3 == 0 ? make_jpeg(gradient(20 + i, 40 - i), 90) : encode_png(gradient(side + i % 2 * i, side));
    if (i == 3) picture.resize(picture.size() / 2);
    if (i == 5) picture = "no picture";
    if (i != 36) shard.push_back({key + (i % 3 == 0 ? ".jpg" : ".png"), picture});
    if (i == 20) shard.push_back({key + ".1.png", encode_png(plain(4, 4, 1, 2, 3))});
    if (i != 4) shard.push_back({key + ".txt", "caption number " + std::to_string(i) + (i == 7 ? "\xff" : "")});
  }
  for (int i = 0; i < 3; ++i) write(folder.path("part-" + std::to_string(i) + ".tar"), make_tar(members[i]));
}

StreamOptions options(const TemporaryFolder& folder) {
  StreamOptions o;
  o.shards = {folder.path("part-*.tar")};
  o.seed = 5;
  o.global_batch = 8;
  o.rule = {.image_size = side, .positions_per_image = 4, .max_length = 9, .vocabulary = 264};  // two images do not fit
  return o;
}

struct Flat {
  std::string key;
  std::vector<int32_t> ids, labels;
  std::vector<uint8_t> pixels;
  bool operator==(const Flat&) const = default;
};

Flat flat(const Sample& s) {
  Flat f{s.key, s.ids, s.labels, {}};
  for (const Image& image : s.images) f.pixels.insert(f.pixels.end(), image.rgb.begin(), image.rgb.end());
  return f;
}

// Global batches in the order asked for, put together from all ranks.
std::vector<Flat> read(StreamOptions o, int ranks, int threads, const std::vector<int64_t>& batches) {
  std::vector<std::unique_ptr<Stream>> streams;
  for (int r = 0; r < ranks; ++r) {
    o.rank = r, o.ranks = ranks, o.threads = threads;
    streams.push_back(std::make_unique<Stream>(o));
  }
  std::vector<Flat> all;
  for (const int64_t b : batches)
    for (const auto& stream : streams)
      for (const Sample& s : stream->next(b)) all.push_back(flat(s));
  return all;
}

TEST(Stream, SameSamplesForAnyNumberOfRanksAndThreads) {
  const TemporaryFolder folder;
  make_shards(folder);
  std::vector<int64_t> batches(14);  // three epochs
  for (size_t i = 0; i < batches.size(); ++i) batches[i] = static_cast<int64_t>(i);
  for (const bool shuffle : {false, true}) {
    StreamOptions o = options(folder);
    o.shuffle = shuffle;
    const std::vector<Flat> want = read(o, 1, 1, batches);
    ASSERT_EQ(want.size(), 14u * 8);
    for (const int ranks : {1, 2, 4})
      for (const int threads : {1, 2, 8})
        EXPECT_EQ(read(o, ranks, threads, batches), want) << ranks << " ranks, " << threads << " threads";
  }
}

TEST(Stream, AnyJumpGivesTheSameBatch) {
  const TemporaryFolder folder;
  make_shards(folder);
  const StreamOptions o = options(folder);
  std::vector<std::vector<Flat>> want;
  for (int64_t b = 0; b < 12; ++b) want.push_back(read(o, 1, 1, {b}));
  StreamOptions two = o;
  two.threads = 2;
  Stream stream(two);
  std::mt19937 random(3);
  for (int i = 0; i < 60; ++i) {
    const auto b = static_cast<int64_t>(random() % want.size());
    std::vector<Flat> got;
    for (const Sample& s : stream.next(b)) got.push_back(flat(s));
    ASSERT_EQ(got, want[static_cast<size_t>(b)]) << b;
  }
  EXPECT_EQ(stream.next(int64_t{1} << 50).size(), 8u);
}

TEST(Stream, ShrinkingChangesNoSample) {
  const TemporaryFolder folder;
  make_shards(folder);
  StreamOptions o = options(folder);
  std::vector<std::vector<Flat>> want;
  for (int64_t b = 0; b < 12; ++b) want.push_back(read(o, 1, 1, {b}));
  o.threads = 8;
  Stream stream(o);
  for (int64_t b = 0; b < 12; ++b) {
    if (b % 2 == 1) stream.shrink(static_cast<int>(b / 2));  // past the last of the threads
    std::vector<Flat> got;
    for (const Sample& s : stream.next(b)) got.push_back(flat(s));
    ASSERT_EQ(got, want[static_cast<size_t>(b)]) << b;
  }
}

TEST(Stream, RejectedSamplesAreReplacedByTheNextUsableOne) {
  const TemporaryFolder folder;
  make_shards(folder);
  StreamOptions o = options(folder);
  o.shuffle = false;
  o.global_batch = 37;
  Stream stream(o);
  EXPECT_EQ(stream.samples(), 37);
  const std::vector<Sample> epoch = stream.next(0);
  for (int i = 0; i < 37; ++i) {
    int want = i;
    while (bad.contains(want)) want = (want + 1) % 37;
    EXPECT_EQ(epoch[static_cast<size_t>(i)].key, "s" + std::to_string(want));
  }
  stream.next(1);
  EXPECT_EQ(stream.counters().rejected, 5);
  EXPECT_EQ(stream.counters().invalid_utf8, 1);
  const std::vector<Stream::Item> items = stream.at(0, 100);
  ASSERT_EQ(items.size(), 37u);
  for (int i = 0; i < 37; ++i) {
    EXPECT_EQ(items[static_cast<size_t>(i)].usable, !bad.contains(i));
    EXPECT_EQ(items[static_cast<size_t>(i)].sample.key, "s" + std::to_string(i));
  }
}

TEST(Stream, EveryEpochHasEverySampleOnce) {
  const TemporaryFolder folder;
  std::vector<std::pair<std::string, std::string>> members;
  for (int i = 0; i < 21; ++i) {
    members.push_back({std::to_string(i) + ".png", encode_png(plain(2, 2, static_cast<uint8_t>(i), 0, 0))});
    members.push_back({std::to_string(i) + ".txt", "x"});
  }
  write(folder.path("part-0.tar"), make_tar(members));
  StreamOptions o = options(folder);
  o.global_batch = 7;
  Stream stream(o);
  std::vector<std::string> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::set<std::string> keys;
    std::string order;
    for (int b = 0; b < 3; ++b)
      for (const Sample& s : stream.next(epoch * 3 + b)) {
        keys.insert(s.key);
        order += s.key + " ";
        EXPECT_EQ(s.images.at(0).rgb.at(0), std::stoi(s.key));  // the picture that belongs to the key
      }
    EXPECT_EQ(keys.size(), 21u);
    orders.push_back(order);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
}

TEST(Stream, PicturesFirstAllPicturesOneAfterAnother) {
  const TemporaryFolder folder;
  write(folder.path("part-0.tar"),
        make_tar({{"a.10.png", encode_png(plain(2, 2, 10, 0, 0))},
                  {"a.2.png", encode_png(plain(2, 2, 2, 0, 0))},
                  {"a.seg.png", "not a picture of the sample"},
                  {"b.txt", "B"},
                  {"a.json",
                   R"({"messages": [{"role": "user", "content": "<image><image>?"}, {"role": "assistant", "content": "!"}]})"},
                  {"b.PNG", encode_png(plain(2, 2, 7, 0, 0))}}));
  StreamOptions o = options(folder);
  o.rule.max_length = 0;
  o.shuffle = false;
  o.global_batch = 2;
  Stream stream(o);
  const std::vector<Sample> batch = stream.next(0);
  ASSERT_EQ(batch[0].images.size(), 2u);
  EXPECT_EQ(batch[0].images[0].rgb[0], 2);
  EXPECT_EQ(batch[0].images[1].rgb[0], 10);
  EXPECT_EQ(batch[0].images[0].width, side);
  EXPECT_EQ(batch[1].images.size(), 1u);
}

TEST(Stream, ShardsThatCannotBeReadAreNamedAtOpening) {
  const TemporaryFolder folder;
  make_shards(folder);
  StreamOptions o = options(folder);
  std::filesystem::resize_file(folder.path("part-2.tar"), std::filesystem::file_size(folder.path("part-2.tar")) / 2);
  const std::string cut = error_of(exit_status::data, [&] { Stream stream(o); });
  EXPECT_NE(cut.find(folder.path("part-2.tar") + ": offset "), std::string::npos) << cut;
  EXPECT_NE(cut.find("cut short"), std::string::npos) << cut;
  o.shards = {folder.path("none-*.tar")};
  EXPECT_NE(error_of(exit_status::data, [&] { Stream stream(o); }).find("none-*.tar"), std::string::npos);
  write(folder.path("empty.tar"), make_tar({}));
  o.shards = {folder.path("empty.tar")};
  EXPECT_NE(error_of(exit_status::data, [&] { Stream stream(o); }).find("no sample"), std::string::npos);
}

TEST(Stream, WrongOptionsAreUsageErrors) {
  const TemporaryFolder folder;
  make_shards(folder);
  const auto refused = [&](const std::function<void(StreamOptions&)>& change) {
    StreamOptions o = options(folder);
    change(o);
    return !error_of(exit_status::usage, [&] { Stream stream(o); }).empty();
  };
  EXPECT_TRUE(refused([](StreamOptions& o) { o.ranks = 3; }));
  EXPECT_TRUE(refused([](StreamOptions& o) { o.rule.vocabulary = 256; }));
  EXPECT_TRUE(refused([](StreamOptions& o) { o.rule.image_size = 0; }));
}

TEST(Stream, AReplacedShardIsAnError) {
  const TemporaryFolder folder;
  make_shards(folder);
  Stream stream(options(folder));
  write(folder.path("new"), make_tar({{"x.png", "y"}}));
  for (int i = 0; i < 3; ++i) {
    std::filesystem::copy_file(folder.path("new"), folder.path("copy"), std::filesystem::copy_options::overwrite_existing);
    std::filesystem::rename(folder.path("copy"), folder.path("part-" + std::to_string(i) + ".tar"));
  }
  EXPECT_NE(error_of(exit_status::data, [&] { stream.next(0); }).find("changed since it was opened"), std::string::npos);
  EXPECT_NE(error_of(exit_status::data, [&] { stream.next(0); }), "");  // again, not a hang
}

TEST(Stream, ADataSetOfBadSamplesEndsTheRun) {
  const TemporaryFolder folder;
  std::vector<std::pair<std::string, std::string>> members;
  for (int i = 0; i < 400; ++i) {
    members.push_back({std::to_string(i) + ".png", i % 2 == 0 ? encode_png(plain(2, 2, 1, 1, 1)) : "rubbish"});
    members.push_back({std::to_string(i) + ".txt", "x"});
  }
  write(folder.path("part-0.tar"), make_tar(members));
  Stream half(options(folder));
  const std::string reason = error_of(exit_status::data, [&] {
    for (int64_t b = 0; b < 50; ++b) half.next(b);
  });
  EXPECT_NE(reason.find("101 of 400 samples cannot be used; the last reason: " + folder.path("part-0.tar") + ": sample "),
            std::string::npos)
      << reason;

  write(folder.path("part-0.tar"), make_tar({{"a.png", "rubbish"}, {"a.txt", "x"}}));
  Stream none(options(folder));
  EXPECT_NE(error_of(exit_status::data, [&] { none.next(0); }).find("png: neither PNG"), std::string::npos);
}

TEST(Stream, FingerprintTellsDataSetsApart) {
  const TemporaryFolder one, two;
  make_shards(one);
  make_shards(two);
  EXPECT_EQ(Stream(options(one)).fingerprint(), Stream(options(two)).fingerprint());  // the place does not matter
  write(two.path("part-1.tar"), make_tar({{"z.png", encode_png(plain(2, 2, 1, 1, 1))}, {"z.txt", "z"}}));
  EXPECT_NE(Stream(options(one)).fingerprint(), Stream(options(two)).fingerprint());
}

}  // namespace
}  // namespace mm::data
