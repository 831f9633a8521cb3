// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/image/image.h"

#include <png.h>

#include <cmath>
#include <random>

#include "common/files.h"
#include "common/process.h"
#include "tests/trainer/data/support.h"
#include "trainer/data/image/decode.h"

namespace mm::data {
namespace {

using namespace test;

std::vector<int> pixel(const Image& image, int x, int y) {
  const size_t at = (static_cast<size_t>(y) * static_cast<size_t>(image.width) + static_cast<size_t>(x)) * 3;
  return {image.rgb[at], image.rgb[at + 1], image.rgb[at + 2]};
}

TEST(Image, PngComesBackAsItWasWritten) {
  for (const auto& [w, h] : {std::pair{1, 1}, {3, 2}, {48, 48}, {257, 31}}) {
    const Image image = gradient(w, h), back = decode_image(encode_png(image));
    EXPECT_EQ(back.width, w);
    EXPECT_EQ(back.height, h);
    EXPECT_EQ(back.rgb, image.rgb);
  }
}

TEST(Image, Case13PngAlphaLiesOnWhiteAndSixteenBitsAreScaled) {
  const Image alpha = decode_image(make_png({2, 1, 8, PNG_COLOR_TYPE_RGBA}, {200, 0, 0, 0, 100, 200, 0, 128}));
  EXPECT_EQ(pixel(alpha, 0, 0), (std::vector{255, 255, 255}));
  EXPECT_EQ(pixel(alpha, 1, 0), (std::vector{177, 227, 127}));
  const Image deep = decode_image(make_png({3, 1, 16, PNG_COLOR_TYPE_GRAY}, {0x00, 0x00, 0x80, 0x80, 0xff, 0xff}));
  EXPECT_EQ(pixel(deep, 0, 0), (std::vector{0, 0, 0}));
  EXPECT_EQ(pixel(deep, 1, 0), (std::vector{128, 128, 128}));
  EXPECT_EQ(pixel(deep, 2, 0), (std::vector{255, 255, 255}));
  const Image palette = decode_image(
      make_png({4, 1, 2, PNG_COLOR_TYPE_PALETTE, false, {{10, 20, 30, 255}, {40, 50, 60, 255}, {0, 0, 0, 0}}}, {0b00011000}));
  EXPECT_EQ(pixel(palette, 0, 0), (std::vector{10, 20, 30}));
  EXPECT_EQ(pixel(palette, 1, 0), (std::vector{40, 50, 60}));
  EXPECT_EQ(pixel(palette, 2, 0), (std::vector{255, 255, 255}));
}

TEST(Image, InterlacedPngIsTheSamePicture) {
  const Image image = gradient(37, 23);
  EXPECT_EQ(decode_image(make_png({37, 23, 8, PNG_COLOR_TYPE_RGB, true}, image.rgb)).rgb, image.rgb);
}

TEST(Image, Case13JpegIsCloseAndTurnedAsExifSays) {
  // Four quarters: red, green / blue, white.
  Image image = plain(64, 32, 255, 255, 255);
  for (int y = 0; y < 32; ++y)
    for (int x = 0; x < 64; ++x) {
      uint8_t* p = &image.rgb[static_cast<size_t>(y * 64 + x) * 3];
      if (y < 16)
        p[0] = x < 32 ? 255 : 0, p[1] = x < 32 ? 0 : 255, p[2] = 0;
      else if (x < 32)
        p[0] = 0, p[1] = 0, p[2] = 255;
    }
  const auto name = [](const std::vector<int>& p) { return p[0] > 200 ? (p[1] > 200 ? 'w' : 'r') : p[1] > 200 ? 'g' : 'b'; };
  // Corners of the upright picture: top left, top right, bottom left, bottom right.
  const char* corners[] = {"", "rgbw", "grwb", "wbgr", "bwrg", "rbgw", "brwg", "wgbr", "gwrb"};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const Image turned = decode_image(make_jpeg(image, 95, orientation));
    const int right = turned.width - 4, bottom = turned.height - 4;
    EXPECT_EQ(turned.width, orientation < 5 ? 64 : 32);
    std::string seen;
    for (const auto& [x, y] : {std::pair{3, 3}, {right, 3}, {3, bottom}, {right, bottom}}) seen += name(pixel(turned, x, y));
    EXPECT_EQ(seen, corners[orientation]) << orientation;
  }
}

TEST(Image, Case13InkAndGrayAndNarrowPictures) {
  // Ink is stored inverted: 255 is none. White, cyan, half black; then gray.
  const auto ink = [](std::vector<uint8_t> quad) {
    std::vector<uint8_t> all;
    for (int i = 0; i < 256; ++i) all.insert(all.end(), quad.begin(), quad.end());
    return pixel(decode_image(make_jpeg_of(16, 16, 4, all, 100)), 8, 8);
  };
  EXPECT_EQ(ink({255, 255, 255, 255}), (std::vector{255, 255, 255}));
  EXPECT_EQ(ink({0, 255, 255, 255}), (std::vector{0, 255, 255}));
  EXPECT_EQ(ink({255, 255, 255, 128}), (std::vector{128, 128, 128}));
  EXPECT_EQ(pixel(decode_image(make_jpeg_of(16, 16, 1, std::vector<uint8_t>(256, 77), 100)), 3, 3), (std::vector{77, 77, 77}));
  for (const std::string& file : {encode_png(gradient(1, 50)), make_jpeg(gradient(1, 50), 90), make_webp(gradient(1, 50), 255)}) {
    const Image narrow = decode_image(file);
    EXPECT_EQ(narrow.width, 1);
    EXPECT_EQ(narrow.height, 50);
  }
  EXPECT_EQ(decode_image(make_jpeg(gradient(1, 50), 90, 6)).width, 50);
}

TEST(Image, WebpAndGif) {
  const Image image = gradient(20, 10);
  EXPECT_EQ(decode_image(make_webp(image, 255)).rgb, image.rgb);
  EXPECT_EQ(pixel(decode_image(make_webp(plain(4, 4, 0, 0, 0), 51)), 1, 1), (std::vector{204, 204, 204}));
  const Image gif = decode_image(small_gif());
  EXPECT_EQ(gif.rgb, (std::vector<uint8_t>{255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255}));
}

TEST(Image, Case13EveryCutIsRefusedWithAReason) {
  const Image image = gradient(40, 30);
  const std::string files[] = {encode_png(image), make_jpeg(image, 90), make_webp(image, 255), small_gif()};
  for (const std::string& file : files) {
    // The last bytes of PNG (IEND), JPEG (EOI) and GIF (trailer) hold no pixels.
    const size_t pixels_end = file.size() - (file.starts_with("\x89") ? 12 : 2);
    for (size_t length = 0; length < pixels_end; length += 1 + file.size() / 150) {
      const std::string reason = error_of(exit_status::data, [&] { decode_image(std::string_view(file).substr(0, length)); });
      EXPECT_FALSE(reason.empty());
    }
  }
}

uint32_t crc_of(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int k = 0; k < 8; ++k) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

TEST(Image, SizesAreCheckedBeforePixelsAreAllocated) {
  // A header that claims 60,000 x 1,000 pixels over the data of 8 x 8: within the limit, but more than so few bytes can hold.
  std::string png = encode_png(plain(8, 8, 1, 2, 3));
  png.replace(16, 8, std::string_view("\0\0\xEA\x60\0\0\x03\xE8", 8));
  const uint32_t crc = crc_of(std::string_view(png).substr(12, 17));
  for (size_t i = 0; i < 4; ++i) png[29 + i] = static_cast<char>(crc >> (24 - 8 * i));
  EXPECT_NE(error_of(exit_status::data, [&] { decode_image(png); }).find("a size that its data cannot fill"),
            std::string::npos);
  const std::string wide = make_png({20000, 1, 1, PNG_COLOR_TYPE_GRAY}, std::vector<uint8_t>(2500));
  for (const std::string& file : {wide, make_jpeg(gradient(200, 100), 80), make_webp(gradient(200, 100), 255)})
    EXPECT_NE(error_of(exit_status::data, [&] { decode_image(file, {10000}); }).find("limit of 10000"), std::string::npos);
}

TEST(Image, DamagedFilesDecodeOrAreRefusedButNeverMore) {
  const Image image = gradient(33, 21);
  std::vector<std::string> files = {encode_png(image), make_png({33, 21, 8, PNG_COLOR_TYPE_RGB, true}, image.rgb),
                                    make_jpeg(image, 90, 6), make_webp(image, 200), small_gif()};
  if (!corpus().empty())
    for (const char* name :
         {"iss634.webp", "lossy_alpha.webp", "pil123p.png", "hopper_orientation_7.jpg", "pil_sample_cmyk.jpg"})
      files.push_back(read_file(corpus() + "/images/" + name));
  const unsigned seed = 20240917;
  std::mt19937 random(seed);
  int decoded = 0, refused = 0;
  for (const std::string& file : files)
    for (int round = 0; round < 200; ++round) {
      std::string bad = file;
      for (unsigned n = 1 + random() % 4; n > 0; --n) bad[random() % bad.size()] = static_cast<char>(random());
      if (random() % 4 == 0) bad.resize(random() % bad.size());
      try {
        const Image out = decode_image(bad, {1'000'000});
        EXPECT_EQ(out.rgb.size(), static_cast<size_t>(out.width) * static_cast<size_t>(out.height) * 3);
        ++decoded;
      } catch (const Error& error) {
        EXPECT_EQ(error.status, exit_status::data);
        ++refused;
      }
    }
  EXPECT_GT(refused, 100) << "seed " << seed;
  EXPECT_GT(decoded, 100) << "seed " << seed;
}

// The same filter in double precision, written for clarity.
Image resized_exactly(const Image& image, int width, int height) {
  const auto weight = [](double x) {
    x = std::abs(x);
    return x < 1 ? 1.5 * x * x * x - 2.5 * x * x + 1 : x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2 : 0.0;
  };
  const auto pass = [&](int in, int out, int i, auto&& value) {
    const double scale = static_cast<double>(in) / out, wide = std::max(scale, 1.0), centre = (i + 0.5) * scale;
    double sum = 0, weights = 0;
    for (int k = std::max(0, static_cast<int>(centre - 2 * wide) - 1);
         k < std::min(in, static_cast<int>(centre + 2 * wide) + 2); ++k) {
      const double w = weight((k + 0.5 - centre) / wide);
      sum += w * value(k);
      weights += w;
    }
    return std::clamp(std::round(sum / weights), 0.0, 255.0);
  };
  std::vector<double> rows(static_cast<size_t>(width * image.height * 3));
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < 3; ++c)
        rows[static_cast<size_t>((y * width + x) * 3 + c)] = pass(image.width, width, x, [&](int k) {
          return double{image.rgb[static_cast<size_t>((y * image.width + k) * 3 + c)] + 0.0};
        });
  Image out{width, height, {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < 3; ++c)
        out.rgb.push_back(static_cast<uint8_t>(
            pass(image.height, height, y, [&](int k) { return rows[static_cast<size_t>((k * width + x) * 3 + c)]; })));
  return out;
}

Image noise(int width, int height, unsigned seed) {
  std::mt19937 random(seed);
  Image image{width, height, std::vector<uint8_t>(static_cast<size_t>(width * height * 3))};
  for (uint8_t& v : image.rgb) v = static_cast<uint8_t>(random() % 3 == 0 ? random() % 256 : random() % 2 * 255);
  return image;
}

constexpr int geometries[][4] = {{128, 96, 48, 48}, {32, 32, 48, 48},    {3, 2, 48, 48},   {1, 1, 16, 16},
                                 {5, 300, 48, 40},  {100, 100, 101, 99}, {48, 90, 48, 48}, {90, 48, 48, 48}};

TEST(Resize, EqualsTheFilterInDoublePrecision) {
  for (const auto& g : geometries) {
    const Image image = noise(g[0], g[1], 7), got = resize_image(image, g[2], g[3]), want = resized_exactly(image, g[2], g[3]);
    ASSERT_EQ(got.rgb.size(), want.rgb.size());
    int most = 0;
    for (size_t i = 0; i < got.rgb.size(); ++i) most = std::max(most, std::abs(got.rgb[i] - want.rgb[i]));
    EXPECT_LE(most, 1) << g[0] << " x " << g[1];
  }
  const Image same = noise(20, 20, 3);
  EXPECT_EQ(resize_image(same, 20, 20).rgb, same.rgb);
}

TEST(Resize, EqualsPillowToTheBit) {
  if (!run_command({"/usr/bin/python3", "-c", "import PIL"}, std::chrono::seconds(60)).ok())
    GTEST_SKIP() << "python3-pil is not installed";
  const TemporaryFolder folder;
  for (const auto& g : geometries) {
    const Image image = noise(g[0], g[1], 11);
    write(folder.path("in.png"), encode_png(image));
    const std::string script =
        "import sys; from PIL import Image; open(sys.argv[2], 'wb').write(Image.open(sys.argv[1]).convert('RGB').resize((" +
        std::to_string(g[2]) + ", " + std::to_string(g[3]) + "), Image.BICUBIC).tobytes())";
    const CommandResult result =
        run_command({"/usr/bin/python3", "-c", script, folder.path("in.png"), folder.path("out")}, std::chrono::seconds(60));
    ASSERT_TRUE(result.ok()) << result.err;
    const Image got = resize_image(image, g[2], g[3]);
    EXPECT_EQ(std::string(got.rgb.begin(), got.rgb.end()), read_file(folder.path("out"))) << g[0] << " x " << g[1];
  }
}

TEST(Image, DecodeWithinAveragesLargePicturesDown) {
  const Image image = gradient(900, 450);
  std::vector<uint8_t> rgba;
  for (size_t i = 0; i < image.rgb.size(); i += 3)
    rgba.insert(rgba.end(), {image.rgb[i], image.rgb[i + 1], image.rgb[i + 2], 255});
  for (const std::string& png : {encode_png(image), make_png({900, 450, 8, PNG_COLOR_TYPE_RGBA}, rgba)}) {
    const Image got = decode_within(png, 60), want = resize_image(image, 60, 30);
    ASSERT_EQ(got.width, 60);
    ASSERT_EQ(got.height, 30);
    for (size_t i = 0; i < got.rgb.size(); ++i)
      if (i % 3 != 2) {
        EXPECT_NEAR(got.rgb[i], want.rgb[i], 3) << i;
      }
  }
  EXPECT_EQ(decode_within(encode_png(image), 0).width, 900);
  EXPECT_EQ(decode_within(encode_png(image), 1000).width, 900);
}

}  // namespace
}  // namespace mm::data
