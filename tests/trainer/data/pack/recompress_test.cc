// SPDX-License-Identifier: Apache-2.0
// Shards recompressed, and shards and loose files of sounds inspected.
#include "trainer/data/pack/recompress.h"

#include <cmath>
#include <filesystem>

#include "tests/trainer/data/support.h"
#include "trainer/data/dataset.h"
#include "trainer/data/image/image.h"
#include "trainer/data/pack/inspect.h"

namespace mm::data {
namespace {

using namespace test;

Image noise(int width, int height) {
  Image image{width, height, {}};
  uint32_t state = 1;
  for (int i = 0; i < width * height * 3; ++i) image.rgb.push_back(static_cast<uint8_t>(100 + (i / 3) % 97 + ((state = state * 1664525 + 1013904223) >> 28)));
  return image;
}

std::string content(const Dataset& dataset, int64_t sample, const std::string& name) {
  for (const Part& part : dataset.parts(sample))
    if (dataset.part_name(part) == name) return dataset.read(sample, part);
  return "none";
}

TEST(Recompress, PicturesBecomeSmallerAndAllElseStays) {
  const TemporaryFolder folder;
  const std::string png = encode_png(noise(200, 100)), tiny = encode_png(plain(2, 2, 1, 2, 3));
  write(folder.path("in/train-00000.tar"), make_tar({{"d/a.png", png}, {"d/a.txt", "caption"}, {"b.0.png", tiny}, {"b.1.png", png}, {"b.json", "{}"}}));
  write(folder.path("in/train-00001.tar"), make_tar({{"c.png", "damaged"}, {"c.txt", "x"}}));
  write(folder.path("in/heldout-00000.tar"), make_tar({{"e.jpg", make_jpeg(gradient(300, 150), 100)}, {"e.txt", "y"}}));
  RecompressOptions options{.shards = {folder.path("in/*.tar")}, .out = folder.path("out"), .quality = 80, .max_side = 120, .limits = {}};
  options.threads = 2;
  const RecompressResult r = recompress(options);
  EXPECT_EQ(r.samples, 4);
  EXPECT_EQ(r.pictures, 5);
  EXPECT_EQ(r.kept, 2);  // the tiny one and the damaged one
  EXPECT_EQ(r.undecodable, 1);
  EXPECT_LT(r.bytes_after, r.bytes_before);
  EXPECT_GT(r.psnr_least, 20);
  EXPECT_GE(r.psnr_mean, r.psnr_least);
  EXPECT_GT(r.max_difference, 0);

  const Dataset train = Dataset::open_one(folder.path("out/train-00000.tar"));
  ASSERT_EQ(train.samples(), 3);
  EXPECT_EQ(train.key(0), "d/a");
  EXPECT_EQ(content(train, 0, "txt"), "caption");
  EXPECT_EQ(content(train, 0, "png"), "none");
  const Image a = decode_image(content(train, 0, "jpg"));
  EXPECT_EQ(a.width, 120);
  EXPECT_EQ(a.height, 60);
  EXPECT_EQ(content(train, 1, "0.png"), tiny);
  EXPECT_EQ(decode_image(content(train, 1, "1.jpg")).width, 120);
  EXPECT_EQ(content(train, 2, "png"), "damaged");
  EXPECT_EQ(Dataset::open_one(folder.path("out/heldout-00000.tar")).samples(), 1);
  EXPECT_NE(error_of(exit_status::usage, [&] { recompress(options); }).find("not empty"), std::string::npos);
  options.replace = true;
  EXPECT_EQ(recompress(options).bytes_after, r.bytes_after);  // the same pictures give the same bytes
}

TEST(Inspect, SoundsOfSamplesAndLooseOnes) {
  // 16 bits, one channel, 16 kHz, 1,000 samples.
  std::string wav("RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3E\0\0\0\x7D\0\0\x02\0\x10\0data\xD0\x07\0\0", 44);
  for (int i = 0; i < 1000; ++i) wav += static_cast<char>(i * 7), wav += static_cast<char>(i % 64);
  const TemporaryFolder folder;
  const std::string shard = folder.path("x.tar");
  write(shard, make_tar({{"a.wav", wav}, {"a.txt", "said\xFF"}, {"b.wav", wav.substr(0, 900)}, {"c.wav", wav}, {"c.png", encode_png(plain(2, 2, 1, 1, 1))}, {"c.txt", "x"}}));
  const Dataset dataset = Dataset::open_one(shard);
  const Inspection a = inspect_sample(dataset, 0), b = inspect_sample(dataset, 1), c = inspect_sample(dataset, 2);
  EXPECT_EQ(a.reason, "");
  EXPECT_EQ(a.sounds, 1);
  EXPECT_EQ(a.rate, 16000);
  EXPECT_EQ(a.mel_frames, 6);
  EXPECT_TRUE(a.repaired_text);
  EXPECT_NE(b.reason.find("wav: WAV: the chunk at 36 claims 2000 bytes"), std::string::npos) << b.reason;
  EXPECT_EQ(c.reason, "");
  EXPECT_EQ(c.pictures, 1);
  write(folder.path("loose.WAV"), wav);
  EXPECT_EQ(inspect_file(folder.path("loose.WAV")).reason, "");
  write(folder.path("loose.flac"), wav);
  EXPECT_EQ(inspect_file(folder.path("loose.flac")).reason, "");  // the content decides
  write(folder.path("empty.wav"), "");
  EXPECT_EQ(inspect_file(folder.path("empty.wav")).reason, "empty file");
}

}  // namespace
}  // namespace mm::data
