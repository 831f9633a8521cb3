// SPDX-License-Identifier: Apache-2.0
// The orientation tag of EXIF, which is a small TIFF file: byte order, the number 42, the offset of a directory of 12-byte
// entries.
#include <optional>
#include <utility>

#include "trainer/data/image/decode.h"

namespace mm::data {
namespace {

struct TiffView {
  std::string_view bytes;
  bool little = true;

  std::optional<uint32_t> number(size_t at, int length) const {
    if (at > bytes.size() || bytes.size() - at < static_cast<size_t>(length)) return std::nullopt;
    uint32_t value = 0;
    for (int i = 0; i < length; ++i) {
      const auto byte = static_cast<uint32_t>(static_cast<unsigned char>(bytes[at + static_cast<size_t>(i)]));
      value |= byte << (8 * (little ? i : length - 1 - i));
    }
    return value;
  }
};

}  // namespace

int exif_orientation(std::string_view block) {
  constexpr uint32_t orientation_tag = 0x0112, short_type = 3;
  if (block.starts_with(std::string_view("Exif\0\0", 6))) block.remove_prefix(6);
  TiffView tiff{block};
  if (block.starts_with("MM"))
    tiff.little = false;
  else if (!block.starts_with("II"))
    return 1;
  if (tiff.number(2, 2) != 42) return 1;
  const std::optional<uint32_t> directory = tiff.number(4, 4);
  if (!directory) return 1;
  const std::optional<uint32_t> entries = tiff.number(*directory, 2);
  if (!entries) return 1;
  for (size_t i = 0; i < *entries; ++i) {
    const size_t at = size_t{*directory} + 2 + 12 * i;
    const std::optional<uint32_t> tag = tiff.number(at, 2);
    if (!tag) return 1;
    if (*tag != orientation_tag) continue;
    const uint32_t value = tiff.number(at + 8, 2).value_or(1);
    return tiff.number(at + 2, 2) == short_type && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Image apply_orientation(Image image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  const bool swaps = orientation >= 5;
  Image out;
  out.width = swaps ? image.height : image.width;
  out.height = swaps ? image.width : image.height;
  out.rgb.resize(image.rgb.size());
  // Where the upright pixel (x, y) lies in the stored picture.
  const auto source = [&](int x, int y) -> std::pair<int, int> {
    const int right = image.width - 1, bottom = image.height - 1;
    switch (orientation) {
      case 2:
        return {right - x, y};
      case 3:
        return {right - x, bottom - y};
      case 4:
        return {x, bottom - y};
      case 5:
        return {y, x};
      case 6:
        return {y, bottom - x};
      case 7:
        return {right - y, bottom - x};
      default:
        return {right - y, x};
    }
  };
  uint8_t* to = out.rgb.data();
  for (int y = 0; y < out.height; ++y)
    for (int x = 0; x < out.width; ++x, to += 3) {
      const auto [from_x, from_y] = source(x, y);
      const uint8_t* from =
          &image.rgb[(static_cast<size_t>(from_y) * static_cast<size_t>(image.width) + static_cast<size_t>(from_x)) * 3];
      to[0] = from[0], to[1] = from[1], to[2] = from[2];
    }
  return out;
}

}  // namespace mm::data
