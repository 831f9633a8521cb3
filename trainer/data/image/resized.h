// SPDX-License-Identifier: Apache-2.0
// From a file to a picture of the model's size.
#pragma once

#include <optional>
#include <string_view>

#include "trainer/data/image/image.h"

namespace mm::data {

// decode_image, the random crop (where the rule has one), and resize_image to width x height, then flip and colours; the bytes of
// Pillow's resize where nothing is random. With rule.fast_jpeg, and without a crop, a JPEG goes through decode_jpeg_resized.
struct AugmentKey;
Image decode_resized(std::string_view bytes, int width, int height, const SequenceRule& rule, const AugmentKey* key);

// A JPEG of luma and chroma straight from the decoder's planes, chroma never brought to the size of the luma, by zimg: bicubic
// (a = -0.5) for the luma and the chroma, full range BT.601. On the tests' scenes within 1.5 levels of decode_image and resize_image in
// the mean, and within 30 at sharp edges. Nothing where the file is another kind of JPEG (gray, CMYK, odd sampling). Throws as decode_image.
std::optional<Image> decode_jpeg_resized(std::string_view bytes, int width, int height, const DecodeLimits& limits);

}  // namespace mm::data
