// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/pack/pack.h"

#include <map>
#include <set>

#include "common/files.h"
#include "tests/trainer/data/support.h"
#include "trainer/data/dataset.h"
#include "trainer/data/index/make_index.h"
#include "trainer/data/image/image.h"
#include "trainer/data/pack/caption.h"
#include "trainer/data/pack/find_pictures.h"
#include "trainer/data/pack/ordered.h"

namespace mm::data {
namespace {

using namespace test;

TEST(Caption, WordsOfPathAndName) {
  EXPECT_EQ(caption_of_path("animals/birds/emperor_penguin_01.png"), "animals birds emperor penguin");
  EXPECT_EQ(caption_of_path("Food/Bread/white-bread2 (copy).JPG"), "food bread white copy");
  EXPECT_EQ(caption_of_path("signs_and_symbols/signs/stopSign.v2.png"), "signs and symbols stop sign");
  EXPECT_EQ(caption_of_path("17.png"), "17");
  EXPECT_EQ(caption_of_path("b\xC3\xA4r.png"), "b\xC3\xA4r");
}

TEST(Caption, TableErrorsNameFileAndLine) {
  const TemporaryFolder folder;
  write(folder.path("t.tsv"), "a.png\tan apple\r\n\nb/c.png\ttwo\twords\n");
  const auto captions = read_captions(folder.path("t.tsv"));
  EXPECT_EQ(captions.at("a.png"), "an apple");
  EXPECT_EQ(captions.at("b/c.png"), "two\twords");
  write(folder.path("t.tsv"), "a.png\tx\nbroken\n");
  EXPECT_NE(error_of(exit_status::usage, [&] { read_captions(folder.path("t.tsv")); }).find("t.tsv: line 2"),
            std::string::npos);
}

void make_pictures(const TemporaryFolder& folder) {
  for (int i = 0; i < 60; ++i)
    write(folder.path("src/kind" + std::to_string(i % 4) + "/thing_" + std::to_string(i) + ".png"),
          encode_png(gradient(20 + i * 3, 30)));
  write(folder.path("src/photo.v1.JPG"), make_jpeg(gradient(300, 100), 90, 6));
  write(folder.path("src/photo_v1.png"), encode_png(gradient(5, 5)));  // the same key as the one above
  write(folder.path("src/bad.png"), "rubbish");
  write(folder.path("src/.hidden.png"), "rubbish");
  write(folder.path("src/readme.txt"), "no picture");
  std::filesystem::create_symlink("kind1/thing_1.png", folder.path("src/link.png"));
  std::filesystem::create_symlink("nowhere.png", folder.path("src/dangling.png"));
  std::filesystem::create_directory_symlink(".", folder.path("src/loop"));
}

PackOptions options(const TemporaryFolder& folder, const std::string& out) {
  PackOptions o;
  o.sources = {folder.path("src")};
  o.out = folder.path(out);
  o.max_side = 64;
  o.limits.samples = 25;
  o.holdout_percent = 20;
  return o;
}

std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files[entry.path().filename().string()] = read_file(entry.path().string());
  return files;
}

TEST(Pack, SameBytesForAnyNumberOfThreads) {
  const TemporaryFolder folder;
  make_pictures(folder);
  std::set<std::string> rejected;
  PackProgress progress;
  progress.rejected = [&](const std::string& path, const std::string& reason) {
    EXPECT_FALSE(reason.empty());
    rejected.insert(std::filesystem::path(path).filename().string());
  };
  PackOptions o = options(folder, "one");
  o.threads = 1;
  const PackResult result = pack(o, progress);
  EXPECT_EQ(rejected, (std::set<std::string>{"bad.png", "dangling.png"}));
  EXPECT_EQ(result.train + result.heldout, 63);
  EXPECT_EQ(result.rejected, 2);
  EXPECT_GT(result.heldout, 3);
  const auto want = contents(folder.path("one"));
  EXPECT_EQ(static_cast<int64_t>(want.size()), result.shards);
  for (const int threads : {2, 8}) {
    o = options(folder, "many" + std::to_string(threads));
    o.threads = threads;
    pack(o, {});
    EXPECT_EQ(contents(o.out), want);
  }

  // What is in them: every picture once, none larger than asked, and a picture and its copy on the same side.
  std::map<std::string, std::string> side;
  for (const char* name : {"train", "heldout"}) {
    const Dataset dataset({folder.path(std::string("one/") + name + "-*.tar")});
    for (int64_t i = 0; i < dataset.samples(); ++i) {
      EXPECT_TRUE(side.emplace(dataset.key(i), name).second);
      ASSERT_EQ(dataset.parts(i).size(), 2u);
      const Image image = decode_image(dataset.read(i, dataset.parts(i)[0]));
      EXPECT_LE(std::max(image.width, image.height), 64);
      if (dataset.key(i) == "kind2/thing_2") {
        EXPECT_EQ(image.rgb, gradient(26, 30).rgb);
        EXPECT_EQ(dataset.read(i, dataset.parts(i)[1]), "kind thing");
      }
      if (image.height == 64 && image.width == 21) {  // turned, then made smaller
        EXPECT_TRUE(dataset.key(i).starts_with("photo_v1"));
      }
    }
  }
  EXPECT_EQ(side.size(), 63u);
  EXPECT_TRUE(side.contains("photo_v1") && side.contains("photo_v1-2"));
  EXPECT_EQ(side.at("link"), side.at("kind1/thing_1"));
}

TEST(Pack, TheHeldOutPartStaysWhenPicturesAreAdded) {
  const TemporaryFolder folder;
  make_pictures(folder);
  const auto held_out = [&](const std::string& out) {
    pack(options(folder, out), {});
    const Dataset dataset({folder.path(out + "/heldout-*.tar")});
    std::set<std::string> keys;
    for (int64_t i = 0; i < dataset.samples(); ++i) keys.insert(std::string(dataset.key(i)));
    return keys;
  };
  const std::set<std::string> before = held_out("a");
  for (int i = 0; i < 10; ++i)
    write(folder.path("src/new/n" + std::to_string(i) + ".png"), encode_png(plain(9, 9, static_cast<uint8_t>(i), 1, 1)));
  const std::set<std::string> after = held_out("b");
  EXPECT_TRUE(std::includes(after.begin(), after.end(), before.begin(), before.end()));
}

TEST(Pack, AFolderIsReplacedOnlyWhenAskedAndOnlyShards) {
  const TemporaryFolder folder;
  make_pictures(folder);
  PackOptions o = options(folder, "out");
  pack(o, {});
  const auto first = contents(o.out);
  EXPECT_NE(error_of(exit_status::usage, [&] { pack(o, {}); }).find("--replace"), std::string::npos);
  o.replace = true;
  o.max_side = 8;
  pack(o, {});
  const auto second = contents(o.out);
  EXPECT_NE(second, first);
  make_index({.paths = {o.out}});
  pack(o, {});
  EXPECT_EQ(contents(o.out), second);  // without the index of the old ones
  write(o.out + "/notes.txt", "mine");
  EXPECT_NE(error_of(exit_status::usage, [&] { pack(o, {}); }).find("notes.txt"), std::string::npos);
  EXPECT_EQ(read_file(o.out + "/notes.txt"), "mine");
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_NE(entry.path().filename(), ".out.packing");
}

TEST(Pack, NothingIsPublishedWhenNothingCouldBePacked) {
  const TemporaryFolder folder;
  write(folder.path("src/a.png"), "rubbish");
  EXPECT_NE(error_of(exit_status::data, [&] { pack(options(folder, "out"), {}); }).find("none of 1"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder.path("out")));
  PackOptions o = options(folder, "out");
  o.sources = {folder.path("nowhere")};
  EXPECT_NE(error_of(exit_status::usage, [&] { pack(o, {}); }).find("nowhere"), std::string::npos);
}

TEST(InOrder, AnExceptionOfEitherSideStopsAll) {
  for (const int threads : {1, 4}) {
    std::vector<size_t> seen;
    const auto body = [&] {
      in_order(
          1000, threads, 8,
          [](size_t i) {
            if (i == 50) throw data_error("fifty");
            return i;
          },
          [&](size_t i, size_t value) {
            EXPECT_EQ(i, value);
            seen.push_back(i);
          });
    };
    EXPECT_EQ(error_of(exit_status::data, body), "fifty");
    EXPECT_EQ(seen.size(), 50u);
    const auto late = [&] {
      in_order(
          1000, threads, 8, [](size_t i) { return i; },
          [](size_t i, size_t) {
            if (i == 3) throw data_error("three");
          });
    };
    EXPECT_EQ(error_of(exit_status::data, late), "three");
  }
}

}  // namespace
}  // namespace mm::data
