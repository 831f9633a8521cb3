// SPDX-License-Identifier: Apache-2.0
#include <png.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tests/trainer/make_fixture.h"

namespace mm::fixture {
namespace {

struct Colour {
  const char* name;
  std::array<uint8_t, 3> rgb;
};
constexpr Colour colours[] = {{"red", {215, 45, 40}},     {"green", {45, 165, 75}},   {"blue", {55, 85, 215}},
                              {"yellow", {235, 205, 55}}, {"purple", {145, 65, 185}}, {"orange", {245, 145, 35}}};
constexpr const char* kinds[] = {"circle", "square", "triangle", "cross"};

// Whether the point (x, y), relative to the centre, lies in the shape of radius r.
bool inside(size_t kind, int x, int y, int r) {
  const int ax = std::abs(x), ay = std::abs(y), largest = std::max(ax, ay);
  switch (kind) {
    case 0:
      return x * x + y * y <= r * r;
    case 1:
      return largest <= r;
    case 2:
      return ay <= r && 2 * ax <= y + r;
    default:
      return largest <= r && std::min(ax, ay) <= r / 3;
  }
}

std::string encode_png(const data::Image& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = PNG_FORMAT_RGB;
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::string out(bytes, '\0');
  if (!png_image_write_to_memory(&png, out.data(), &bytes, 0, image.rgb.data(), 0, nullptr))
    throw std::runtime_error(std::string("make-fixture: png: ") + png.message);
  out.resize(bytes);
  return out;
}

// One ustar member.
void append_member(std::ofstream& tar, const std::string& name, const std::string& content) {
  std::array<char, 512> header{};
  const auto put = [&](size_t at, const std::string& text) { text.copy(header.data() + at, text.size()); };
  const auto octal = [](uint64_t value, int digits) {
    char text[32];
    std::snprintf(text, sizeof text, "%0*llo", digits, static_cast<unsigned long long>(value));
    return std::string(text);
  };
  put(0, name);
  put(100, octal(0644, 7));
  put(108, octal(0, 7));
  put(116, octal(0, 7));
  put(124, octal(content.size(), 11));
  put(136, octal(0, 11));
  put(148, "        ");
  header[156] = '0';
  put(257, std::string("ustar\0"
                       "00",
                       8));
  uint64_t sum = 0;
  for (char c : header) sum += static_cast<unsigned char>(c);
  put(148, octal(sum, 6) + '\0');
  tar.write(header.data(), header.size());
  tar << content << std::string((512 - content.size() % 512) % 512, '\0');
}

std::string padded(int64_t value, int digits) {
  const std::string text = std::to_string(value);
  return std::string(static_cast<size_t>(std::max<int64_t>(0, digits - static_cast<int64_t>(text.size()))), '0') + text;
}

}  // namespace

Picture draw(int64_t index, int size) {
  uint64_t at = 0;
  const auto below = [&](uint64_t n) { return hash("picture", static_cast<uint64_t>(index) + 1, at++) % n; };
  Picture picture;
  picture.image = {.width = size, .height = size, .rgb = std::vector<uint8_t>(static_cast<size_t>(size * size) * 3)};
  std::array<uint8_t, 3> background{};
  for (uint8_t& b : background) b = static_cast<uint8_t>(200 + below(56));
  auto& rgb = picture.image.rgb;
  for (size_t i = 0; i < rgb.size(); ++i) rgb[i] = background[i % 3];
  const int shapes = 1 + static_cast<int>(below(2));
  for (int s = 0; s < shapes; ++s) {
    const Colour& colour = colours[below(std::size(colours))];
    const size_t kind = below(std::size(kinds));
    const int r = size / 8 + static_cast<int>(below(static_cast<uint64_t>(size / 8 + 1)));
    const int cx = size / 4 + s * size / 2, cy = r + static_cast<int>(below(static_cast<uint64_t>(size - 2 * r)));
    for (int y = 0; y < size; ++y)
      for (int x = 0; x < size; ++x)
        for (size_t c = 0; c < 3; ++c)
          if (inside(kind, x - cx, y - cy, r)) rgb[static_cast<size_t>(y * size + x) * 3 + c] = colour.rgb[c];
    picture.caption += std::string(s ? " and a " : "a ") + colour.name + " " + kinds[kind];
  }
  return picture;
}

std::vector<data::Sample> samples(const data::SequenceRule& rule, int64_t first, int64_t count) {
  std::vector<data::Sample> out;
  for (int64_t i = first; i < first + count; ++i) {
    Picture picture = draw(i, rule.image_size);
    data::Sample sample;
    sample.key = padded(i, 6);
    sample.ids.push_back(1);
    sample.ids.insert(sample.ids.end(), static_cast<size_t>(rule.positions_per_image), rule.image_token);
    const size_t captioned = sample.ids.size();
    for (unsigned char c : picture.caption) sample.ids.push_back(4 + c);
    sample.ids.push_back(2);
    sample.labels.assign(sample.ids.size(), data::no_label);
    for (size_t p = captioned; p < sample.ids.size(); ++p) sample.labels[p - 1] = sample.ids[p];
    sample.images.push_back(std::move(picture.image));
    out.push_back(std::move(sample));
  }
  return out;
}

void write_shards(const std::string& folder, int64_t samples, int shards, int image_size) {
  std::filesystem::create_directories(folder);
  const int64_t per = (samples + shards - 1) / shards;
  for (int shard = 0; shard < shards; ++shard) {
    const std::string path = folder + "/shapes-" + padded(shard, 5) + ".tar";
    std::ofstream tar(path, std::ios::binary);
    for (int64_t i = shard * per; i < std::min(samples, (shard + 1) * per); ++i) {
      const Picture picture = draw(i, image_size);
      append_member(tar, padded(i, 6) + ".png", encode_png(picture.image));
      append_member(tar, padded(i, 6) + ".txt", picture.caption);
    }
    tar << std::string(1024, '\0');
    tar.close();
    if (!tar) throw std::runtime_error("make-fixture: write " + path);
  }
}

}  // namespace mm::fixture
