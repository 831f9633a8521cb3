// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/image/augment.h"

#include <cmath>
#include <set>

#include "common/files.h"
#include "common/process.h"
#include "tests/trainer/data/support.h"
#include "trainer/data/image/image.h"
#include "trainer/data/image/philox.h"
#include "trainer/data/image/resized.h"

namespace mm::data {
namespace {

using namespace test;
using Words = std::array<uint32_t, 4>;

// The known answers of the authors' own library.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

AugmentRule everything() {
  AugmentRule rule;
  rule.crop = {0.2, 0.9};
  rule.flip = 0.5;
  rule.brightness = rule.contrast = rule.saturation = 0.4;
  rule.hue = 0.1;
  return rule;
}

TEST(Augment, IsAFunctionOfItsKeyAlone) {
  SequenceRule rule;
  rule.augment = everything();
  const std::string file = encode_png(gradient(61, 47));
  std::set<std::vector<uint8_t>> seen;
  for (const AugmentKey& key : {AugmentKey{1, 2, 0}, {1, 3, 0}, {2, 2, 0}, {1, 2, 1}, {1, 2 + (int64_t{1} << 32), 0}}) {
    const Image one = decode_resized(file, 32, 24, rule, &key), again = decode_resized(file, 32, 24, rule, &key);
    EXPECT_EQ(one.rgb, again.rgb);
    EXPECT_EQ(one.width, 32);
    EXPECT_EQ(one.height, 24);
    EXPECT_TRUE(seen.insert(one.rgb).second);
  }
  EXPECT_EQ(decode_resized(file, 32, 24, rule, nullptr).rgb, resize_image(gradient(61, 47), 32, 24).rgb);
}

TEST(Augment, CropsAndFlipsAreSpreadAsTheRuleSays) {
  AugmentRule rule;
  rule.crop = {0.25, 0.75};
  rule.flip = 0.3;
  const Image image = gradient(200, 100);  // red is 255 x / 199, green 255 y / 99
  double areas = 0;
  int flips = 0, left = 0;
  constexpr int rounds = 2000;
  for (int i = 0; i < rounds; ++i) {
    const AugmentKey key{7, i, 0};
    Image cut = random_crop(image, rule, key);
    const double area = static_cast<double>(cut.width) * cut.height / (200 * 100), ratio = static_cast<double>(cut.width) / cut.height;
    ASSERT_GE(area, 0.24);
    ASSERT_LE(area, 0.76);
    ASSERT_GE(ratio, 0.74);
    ASSERT_LE(ratio, 1.36);
    areas += area;
    left += cut.rgb[0] < 255 * (200 - cut.width) / 2 / 199;
    const uint8_t before = cut.rgb[0];
    random_flip(cut, rule, key);
    flips += cut.rgb[0] != before;
  }
  EXPECT_NEAR(flips, 0.3 * rounds, 0.04 * rounds);
  EXPECT_NEAR(left, 0.5 * rounds, 0.05 * rounds);
  EXPECT_LT(areas / rounds, 0.5);  // large boxes of these ratios do not fit this picture
  // A strip that no box fits: the middle, as wide as its ratio may be.
  const Image strip = random_crop(gradient(400, 3), rule, {1, 1, 0});
  EXPECT_EQ(strip.height, 3);
  EXPECT_EQ(strip.width, 4);
  AugmentRule whole;
  whole.crop = {1, 1};
  whole.ratio = {2, 2};
  EXPECT_EQ(random_crop(image, whole, {1, 1, 0}).rgb, image.rgb);
}

// Brightness, contrast and saturation against Pillow's ImageEnhance, hue against Python's colorsys.
TEST(Augment, ColoursAreThoseOfPillow) {
  if (!run_command({"/usr/bin/python3", "-c", "import PIL"}, std::chrono::seconds(60)).ok()) GTEST_SKIP() << "python3-pil is not installed";
  const TemporaryFolder folder;
  const Image image = gradient(40, 30);
  write(folder.path("in.png"), encode_png(image));
  const char* script = R"(
import sys, colorsys
from PIL import Image, ImageEnhance as E
im = Image.open(sys.argv[1]).convert('RGB')
out = open(sys.argv[2], 'wb')
for f in (0.3, 1.7):
  for kind in (E.Brightness, E.Contrast, E.Color): out.write(kind(im).enhance(f).tobytes())
for turn in (-0.2, 0.05, 0.4):
  for r, g, b in im.getdata():
    h, s, v = colorsys.rgb_to_hsv(r / 255, g / 255, b / 255)
    out.write(bytes(int(c * 255 + 0.5) for c in colorsys.hsv_to_rgb((h + turn) % 1, s, v)))
)";
  const CommandResult result =
      run_command({"/usr/bin/python3", "-c", script, folder.path("in.png"), folder.path("out")}, std::chrono::seconds(60));
  ASSERT_TRUE(result.ok()) << result.err;
  const std::string want = read_file(folder.path("out"));
  std::vector<Image> got;
  for (const double factor : {0.3, 1.7})
    for (const auto change : {scale_brightness, scale_contrast, scale_saturation}) change(got.emplace_back(image), factor);
  for (const double turn : {-0.2, 0.05, 0.4}) turn_hue(got.emplace_back(image), turn);
  ASSERT_EQ(want.size(), got.size() * image.rgb.size());
  for (size_t i = 0; i < got.size(); ++i)
    for (size_t k = 0; k < image.rgb.size(); ++k)
      ASSERT_NEAR(got[i].rgb[k], static_cast<uint8_t>(want[i * image.rgb.size() + k]), 1) << i << " at " << k;
}

}  // namespace
}  // namespace mm::data
