// SPDX-License-Identifier: Apache-2.0
// Pictures: decoding of PNG, JPEG, WebP and GIF (first frame) to upright 8-bit RGB, resizing, writing of PNG and JPEG.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trainer/data/sample.h"

namespace mm::data {

struct DecodeLimits {
  int64_t pixels = 100'000'000;
  Colour background = white;
};

// The format is told from the content. Alpha is laid on the background, 16 bits are scaled to 8, CMYK is converted, EXIF orientation is
// applied. Throws a data Error with the reason (the caller names the file). Allocates nothing that the header does not justify
// within the limits.
Image decode_image(std::string_view bytes, const DecodeLimits& limits = {});
// Bicubic (a = -0.5) with antialiasing as Pillow's, exact copy where the size is already right.
Image resize_image(const Image& image, int width, int height);
std::string encode_png(const Image& image);
// Baseline, 4:2:0. A side above 65,500 is a std::runtime_error.
std::string encode_jpeg(const Image& image, int quality);

}  // namespace mm::data
