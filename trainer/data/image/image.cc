// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/image/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/error.h"
#include "trainer/data/image/decode.h"

namespace mm::data {

Format format_of(std::string_view bytes) {
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return Format::png;
  if (bytes.starts_with("\xff\xd8")) return Format::jpeg;
  if (bytes.size() >= 12 && bytes.starts_with("RIFF") && bytes.substr(8, 4) == "WEBP") return Format::webp;
  if (bytes.starts_with("GIF87a") || bytes.starts_with("GIF89a")) return Format::gif;
  return Format::unknown;
}

void check_size(int64_t width, int64_t height, const DecodeLimits& limits) {
  if (width < 1 || height < 1) throw data_error(fmt::format("no pixels: {} x {}", width, height));
  if (width > 1'000'000 || height > 1'000'000 || width * height > limits.pixels)
    throw data_error(fmt::format("{} x {} pixels are more than the limit of {}", width, height, limits.pixels));
}

void lay_on(const Colour& background, const uint8_t* rgba, size_t pixels, uint8_t* rgb) {
  for (size_t i = 0; i < pixels; ++i, rgba += 4, rgb += 3) {
    const uint32_t alpha = rgba[3];
    for (size_t k = 0; k < 3; ++k) rgb[k] = static_cast<uint8_t>((rgba[k] * alpha + background[k] * (255 - alpha) + 127) / 255);
  }
}

namespace {

Decoded decode(std::string_view bytes, const DecodeLimits& limits) {
  switch (format_of(bytes)) {
    case Format::png:
      return decode_png(bytes, limits);
    case Format::jpeg:
      return decode_jpeg(bytes, limits);
    case Format::webp:
      return decode_webp(bytes, limits);
    case Format::gif:
      return decode_gif(bytes, limits);
    case Format::unknown:
      break;
  }
  if (bytes.empty()) throw data_error("empty file");
  throw data_error("neither PNG, JPEG, WebP nor GIF");
}

}  // namespace

Image decode_image(std::string_view bytes, const DecodeLimits& limits) {
  Decoded decoded = decode(bytes, limits);
  return apply_orientation(std::move(decoded.image), decoded.orientation);
}

Image decode_within(std::string_view bytes, int side, const DecodeLimits& limits) {
  int64_t width = 0, height = 0;  // of the original
  Decoded decoded;
  const PngSize png = side > 0 ? streamable_png_size(bytes) : PngSize{};
  const int64_t reduce = side > 0 ? std::max(png.width, png.height) / (int64_t{3} * side) : 0;
  if (reduce > 1) {
    decoded = decode_png(bytes, {streamed_pixels, limits.background}, static_cast<int>(reduce));
    width = png.width, height = png.height;
  } else {
    decoded = decode(bytes, limits);
    width = decoded.image.width, height = decoded.image.height;
  }
  Image image = apply_orientation(std::move(decoded.image), decoded.orientation);
  if (decoded.orientation >= 5) std::swap(width, height);
  const int64_t longer = std::max(width, height);
  if (side <= 0 || longer <= side) return image;
  const auto scaled = [&](int64_t length) {
    return std::max(1, static_cast<int>(std::llround(static_cast<double>(length) * side / static_cast<double>(longer))));
  };
  return resize_image(image, scaled(width), scaled(height));
}

}  // namespace mm::data
