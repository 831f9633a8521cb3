// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/image/resized.h"

#include "trainer/data/image/augment.h"
#include "trainer/data/image/decode.h"
#include "trainer/data/image/spare.h"

namespace mm::data {

Image decode_resized(std::string_view bytes, int width, int height, const SequenceRule& rule, const AugmentKey* key) {
  DecodeLimits limits;
  limits.background = rule.background;
  const AugmentRule none;
  const AugmentRule& augment = key != nullptr ? rule.augment : none;
  std::optional<Image> image;
  if (rule.fast_jpeg && augment.crop.empty() && format_of(bytes) == Format::jpeg)
    image = decode_jpeg_resized(bytes, width, height, limits);
  if (!image) {
    image = decode_image(bytes, limits);
    if (!augment.crop.empty()) image = random_crop(std::move(*image), augment, *key);
    Image whole = std::move(*image);
    image = resize_image(whole, width, height);
    give_back(std::move(whole.rgb));
  }
  if (key != nullptr) {
    random_flip(*image, augment, *key);
    random_colours(*image, augment, *key);
  }
  return std::move(*image);
}

}  // namespace mm::data
