// SPDX-License-Identifier: Apache-2.0
// The fast path of JPEG against the exact one, and alpha on a background.
#include "trainer/data/image/resized.h"

#include <png.h>

#include <cmath>
#include <random>

#include "tests/trainer/data/support.h"

namespace mm::data {
namespace {

using namespace test;

// Smooth, with some edges: what a camera sees.
Image scene(int width, int height) {
  Image image{width, height, {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      const bool box = x > width / 3 && x < width / 2 && y > height / 4 && y < height / 2;
      const auto wave = [&](double a, double b) { return static_cast<uint8_t>(127 + 90 * std::sin(x * a + y * b)); };
      if (box)
        image.rgb.insert(image.rgb.end(), {200, 60, 40});
      else
        image.rgb.insert(image.rgb.end(), {wave(0.05, 0.02), wave(-0.03, 0.06), wave(0.02, 0.04)});
    }
  return image;
}

struct Difference {
  double mean = 0;
  int most = 0;
};
Difference difference(const Image& a, const Image& b) {
  Difference d;
  EXPECT_EQ(a.rgb.size(), b.rgb.size());
  EXPECT_EQ(a.width, b.width);
  for (size_t i = 0; i < a.rgb.size(); ++i) {
    const int off = std::abs(a.rgb[i] - b.rgb[i]);
    d.mean += off / static_cast<double>(a.rgb.size());
    d.most = std::max(d.most, off);
  }
  return d;
}

TEST(FastJpeg, IsNearTheExactPath) {
  for (const auto& [w, h] : {std::pair{500, 375}, {375, 500}, {333, 251}, {97, 101}, {64, 64}, {17, 16}})
    for (const int orientation : {1, 3, 6, 7}) {
      const std::string file = make_jpeg(scene(w, h), 90, orientation);
      const std::optional<Image> fast = decode_jpeg_resized(file, 64, 48, {});
      ASSERT_TRUE(fast.has_value());
      const Difference d = difference(*fast, resize_image(decode_image(file), 64, 48));
      EXPECT_LE(d.mean, 1.5) << w << " x " << h << " turned as " << orientation;
      EXPECT_LE(d.most, 30) << w << " x " << h << " turned as " << orientation;
    }
}

TEST(FastJpeg, LeavesOtherPicturesToTheExactPath) {
  SequenceRule rule;
  rule.fast_jpeg = true;
  EXPECT_FALSE(decode_jpeg_resized(make_jpeg_of(32, 32, 1, std::vector<uint8_t>(1024, 99), 90), 20, 20, {}));
  EXPECT_FALSE(decode_jpeg_resized(make_jpeg(scene(12, 40), 90), 20, 20, {}));
  for (const std::string& file : {make_jpeg_of(32, 32, 4, std::vector<uint8_t>(4096, 99), 90), encode_png(scene(32, 32)), make_jpeg(scene(12, 40), 90)})
    EXPECT_EQ(decode_resized(file, 20, 20, rule, nullptr).rgb, resize_image(decode_image(file), 20, 20).rgb);
}

TEST(FastJpeg, DamageIsRefusedAsByTheExactPath) {
  std::mt19937 random(5);
  const std::string good = make_jpeg(scene(90, 70), 80);
  int agreed = 0;
  for (int round = 0; round < 150; ++round) {
    std::string bad = good;
    for (unsigned n = 1 + random() % 3; n > 0; --n) bad[random() % bad.size()] = static_cast<char>(random());
    if (round % 4 == 0) bad.resize(random() % bad.size());
    const auto refused = [&](const auto& body) {
      try {
        body();
        return false;
      } catch (const Error& error) {
        EXPECT_EQ(error.status, exit_status::data);
        return true;
      }
    };
    const bool exact = refused([&] { decode_image(bad, {1'000'000}); });
    const bool fast = refused([&] { decode_jpeg_resized(bad, 32, 32, {1'000'000}); });
    agreed += exact == fast;
  }
  EXPECT_GT(agreed, 140);
}

TEST(Background, LiesUnderEveryKindOfTransparency) {
  const DecodeLimits limits{.background = {10, 20, 30}};
  const auto first = [&](const std::string& file, size_t at = 0) {
    const Image image = decode_image(file, limits);
    return std::vector<int>{image.rgb[at], image.rgb[at + 1], image.rgb[at + 2]};
  };
  const std::vector<int> background{10, 20, 30};
  EXPECT_EQ(first(make_png({1, 1, 8, PNG_COLOR_TYPE_RGBA}, {9, 9, 9, 0})), background);
  EXPECT_EQ(first(make_png({1, 1, 8, PNG_COLOR_TYPE_RGBA}, {110, 120, 130, 128})), (std::vector<int>{60, 70, 80}));
  EXPECT_EQ(first(make_png({1, 1, 8, PNG_COLOR_TYPE_RGBA, true}, {9, 9, 9, 0})), background);
  EXPECT_EQ(first(make_png({1, 1, 8, PNG_COLOR_TYPE_PALETTE, false, {{1, 2, 3, 0}}}, {0})), background);
  EXPECT_EQ(first(make_webp(plain(2, 2, 200, 0, 0), 0)), background);
  EXPECT_EQ(first(small_gif(), 9), background);
  EXPECT_EQ(first(make_png({1, 1, 8, PNG_COLOR_TYPE_RGBA}, {9, 8, 7, 255})), (std::vector<int>{9, 8, 7}));
}

}  // namespace
}  // namespace mm::data
