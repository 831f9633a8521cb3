// SPDX-License-Identifier: Apache-2.0
// Random changes of training pictures: a crop, a flip, colours. What happens is a pure function of (seed, position in the stream,
// picture of the sample, kind of change): the same for any number of ranks and threads, and after a restart.
#pragma once

#include <cstdint>

#include "trainer/data/sample.h"

namespace mm::data {

// The picture that a draw is for.
struct AugmentKey {
  int64_t seed = 0, position = 0;
  int picture = 0;
};

// Cuts out a box of random area and aspect (both uniform in the rule's ranges, the aspect by its logarithm), whole pixels; where ten
// boxes do not fit, the largest one in the middle whose aspect is in range.
Image random_crop(Image image, const AugmentRule& rule, const AugmentKey& key);
// Mirrored left to right with the rule's probability; then brightness, contrast, saturation (factors uniform in [1 - x, 1 + x], not
// below 0; as Pillow's ImageEnhance) and hue (a turn uniform in [-x, x] of the circle), in this order.
void random_colours(Image& image, const AugmentRule& rule, const AugmentKey& key);
void random_flip(Image& image, const AugmentRule& rule, const AugmentKey& key);

// The changes themselves.
void scale_brightness(Image& image, double factor);
void scale_contrast(Image& image, double factor);
void scale_saturation(Image& image, double factor);
void turn_hue(Image& image, double turn);

}  // namespace mm::data
