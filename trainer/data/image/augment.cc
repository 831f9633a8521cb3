// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/image/augment.h"

#include <algorithm>
#include <cmath>

#include "trainer/data/image/philox.h"

namespace mm::data {
namespace {

enum class Change : uint32_t { crop, flip, brightness, contrast, saturation, hue };
constexpr int crop_tries = 10;

// Two numbers in [0, 1).
struct Draw {
  double first, second;
};
Draw draw(const AugmentKey& key, Change change, uint32_t attempt = 0) {
  const auto position = static_cast<uint64_t>(key.position), seed = static_cast<uint64_t>(key.seed);
  const auto r = philox({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), static_cast<uint32_t>(key.picture),
                         static_cast<uint32_t>(change) | attempt << 8},
                        {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const auto unit = [](uint32_t high, uint32_t low) {
    return static_cast<double>((uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
  };
  return {unit(r[0], r[1]), unit(r[2], r[3])};
}

double between(double least, double most, double unit) {
  return least + (most - least) * unit;
}

uint8_t to_byte(double value) {
  return static_cast<uint8_t>(std::clamp(value + 0.5, 0.0, 255.0));
}

// The luma of Pillow's conversion to "L".
uint32_t luma(const uint8_t* rgb) {
  return (rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16;
}

Image cut(const Image& image, int left, int top, int width, int height) {
  Image out{width, height, {}};
  out.rgb.reserve(static_cast<size_t>(width) * static_cast<size_t>(height) * 3);
  for (int y = 0; y < height; ++y) {
    const auto from = image.rgb.begin() + (static_cast<std::ptrdiff_t>(top + y) * image.width + left) * 3;
    out.rgb.insert(out.rgb.end(), from, from + static_cast<std::ptrdiff_t>(width) * 3);
  }
  return out;
}

}  // namespace

Image random_crop(Image image, const AugmentRule& rule, const AugmentKey& key) {
  if (rule.crop.empty()) return image;
  const double area = static_cast<double>(image.width) * image.height;
  const double least = std::log(rule.ratio[0]), most = std::log(rule.ratio[1]);
  for (uint32_t attempt = 0; attempt < crop_tries; ++attempt) {
    const Draw size = draw(key, Change::crop, 2 * attempt), place = draw(key, Change::crop, 2 * attempt + 1);
    const double wanted = area * between(rule.crop[0], rule.crop[1], size.first), ratio = std::exp(between(least, most, size.second));
    const double width = std::round(std::sqrt(wanted * ratio)), height = std::round(std::sqrt(wanted / ratio));
    if (width < 1 || height < 1 || width > image.width || height > image.height) continue;
    const int w = static_cast<int>(width), h = static_cast<int>(height);
    const int left = static_cast<int>(place.first * (image.width - w + 1)), top = static_cast<int>(place.second * (image.height - h + 1));
    return cut(image, left, top, w, h);
  }
  const double ratio = std::clamp(static_cast<double>(image.width) / image.height, rule.ratio[0], rule.ratio[1]);
  const int w = std::clamp(static_cast<int>(std::round(image.height * ratio)), 1, image.width);
  const int h = std::clamp(static_cast<int>(std::round(image.width / ratio)), 1, image.height);
  return cut(image, (image.width - w) / 2, (image.height - h) / 2, w, h);
}

void random_flip(Image& image, const AugmentRule& rule, const AugmentKey& key) {
  if (!(draw(key, Change::flip).first < rule.flip)) return;
  const auto width = static_cast<size_t>(image.width);
  for (size_t y = 0; y < static_cast<size_t>(image.height); ++y) {
    uint8_t* const row = &image.rgb[y * width * 3];
    for (size_t x = 0; x < width / 2; ++x) std::swap_ranges(row + x * 3, row + x * 3 + 3, row + (width - 1 - x) * 3);
  }
}

void random_colours(Image& image, const AugmentRule& rule, const AugmentKey& key) {
  const auto factor = [&](Change change, double strength) {
    return between(std::max(0.0, 1 - strength), 1 + strength, draw(key, change).first);
  };
  if (rule.brightness > 0) scale_brightness(image, factor(Change::brightness, rule.brightness));
  if (rule.contrast > 0) scale_contrast(image, factor(Change::contrast, rule.contrast));
  if (rule.saturation > 0) scale_saturation(image, factor(Change::saturation, rule.saturation));
  if (rule.hue > 0) turn_hue(image, between(-rule.hue, rule.hue, draw(key, Change::hue).first));
}

void scale_brightness(Image& image, double factor) {
  for (uint8_t& v : image.rgb) v = to_byte(v * factor);
}

void scale_contrast(Image& image, double factor) {
  uint64_t sum = 0;
  for (size_t i = 0; i < image.rgb.size(); i += 3) sum += luma(&image.rgb[i]);
  const double mean = std::floor(static_cast<double>(sum) / (static_cast<double>(image.rgb.size()) / 3) + 0.5);
  for (uint8_t& v : image.rgb) v = to_byte(mean + (v - mean) * factor);
}

void scale_saturation(Image& image, double factor) {
  for (size_t i = 0; i < image.rgb.size(); i += 3) {
    const double gray = luma(&image.rgb[i]);
    for (size_t k = i; k < i + 3; ++k) image.rgb[k] = to_byte(gray + (image.rgb[k] - gray) * factor);
  }
}

// On the hexagon of HSV: value and chroma stay.
void turn_hue(Image& image, double turn) {
  for (size_t i = 0; i < image.rgb.size(); i += 3) {
    const double r = image.rgb[i], g = image.rgb[i + 1], b = image.rgb[i + 2];
    const double most = std::max({r, g, b}), chroma = most - std::min({r, g, b});
    if (chroma == 0) continue;
    double sector = most == r ? (g - b) / chroma : most == g ? 2 + (b - r) / chroma : 4 + (r - g) / chroma;
    sector += 6 * turn;
    sector -= 6 * std::floor(sector / 6);
    const auto channel = [&](double n) {
      const double k = std::fmod(n + sector, 6.0);
      return to_byte(most - chroma * std::clamp(std::min(k, 4 - k), 0.0, 1.0));
    };
    image.rgb[i] = channel(5), image.rgb[i + 1] = channel(3), image.rgb[i + 2] = channel(1);
  }
}

}  // namespace mm::data
