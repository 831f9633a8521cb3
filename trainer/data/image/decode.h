// SPDX-License-Identifier: Apache-2.0
// The decoders behind decode_image, one for each format, and what they share. Each takes a whole file in memory and gives 8-bit
// RGB as it is stored (orientation not yet applied). A data Error says why a file is refused; warnings of a library that mean
// lost pixels (a file cut short, a bad checksum) are refusals, too. Size limits are checked on the header, before pixels are
// allocated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trainer/data/image/image.h"

namespace mm::data {

struct Decoded {
  Image image;
  int orientation = 1;  // EXIF: 1 to 8
};

enum class Format { unknown, png, jpeg, webp, gif };
Format format_of(std::string_view bytes);

// `reduce` > 1: rows are averaged over reduce x reduce boxes while they are read, so that a huge picture is never held whole.
// Only for files that can_reduce_png accepts; the result is ceil(width / reduce) x ceil(height / reduce).
Decoded decode_png(std::string_view bytes, const DecodeLimits& limits, int reduce = 1);
Decoded decode_jpeg(std::string_view bytes, const DecodeLimits& limits);
Decoded decode_webp(std::string_view bytes, const DecodeLimits& limits);
Decoded decode_gif(std::string_view bytes, const DecodeLimits& limits);

// Width and height that a PNG's header states, where its rows come in order (not interlaced); else zeros.
struct PngSize {
  int64_t width = 0, height = 0;
};
PngSize streamable_png_size(std::string_view bytes);

// Decodes and makes the longer side at most `side` (0: as it is). Large PNG files are averaged down while they are read, to not
// less than three times the wanted side, and resized from there; they may have up to `streamed_pixels`.
inline constexpr int64_t streamed_pixels = 2'000'000'000;
Image decode_within(std::string_view bytes, int side, const DecodeLimits& limits = {});

// The orientation of an EXIF block (with or without the "Exif\0\0" in front); 1 where the block is invalid or has none.
int exif_orientation(std::string_view block);
Image apply_orientation(Image image, int orientation);

// Throws unless 1 <= width, height and width * height <= limits.pixels.
void check_size(int64_t width, int64_t height, const DecodeLimits& limits);
// Pixels of four bytes, the fourth 8-bit alpha, on the background, rounded, as three bytes each.
void lay_on(const Colour& background, const uint8_t* rgba, size_t pixels, uint8_t* rgb);

}  // namespace mm::data
