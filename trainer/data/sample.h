// SPDX-License-Identifier: Apache-2.0
// What the loader hands to the model: pictures as 8-bit RGB at the model's size, and the token sequence with its labels.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mm::data {

inline constexpr int32_t no_label = -100;

struct Image {
  int width = 0, height = 0;
  std::vector<uint8_t> rgb;  // height x width x 3, row-major
};

struct Sample {
  std::string key;           // name in the shard, for messages
  std::vector<int32_t> ids;  // every image stands as positions_per_image times the image token
  std::vector<int32_t>
      labels;  // labels[i] is the token to be predicted at position i (ids[i + 1] where it is trained), else no_label
  std::vector<Image> images;  // in the order of their positions in ids
};

class Tokenizer;

using Colour = std::array<uint8_t, 3>;  // red, green, blue
inline constexpr Colour white{255, 255, 255};

// Random changes of pictures in training; none of them by default. See image/augment.h.
struct AugmentRule {
  std::vector<double> crop = {};            // least and most of the picture's area; empty: no crop
  std::vector<double> ratio{3. / 4, 4. / 3};  // least and most of a crop's width / height
  double flip = 0;                          // probability
  double brightness = 0, contrast = 0, saturation = 0, hue = 0;
};

// How samples are made for a model.
struct SequenceRule {
  int image_size = 0;           // pictures are made image_size x image_size
  int positions_per_image = 0;  // tokens that one image takes; 0: samples are pairs of a picture and a text without it
  int32_t image_token = 3;
  int64_t max_length = 0;  // 0: no limit
  int64_t vocabulary = 0;  // ids must be below it
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;  // none: "bytes"
  Colour background = white;  // under transparent parts
  bool fast_jpeg = false;     // see image/resized.h
  AugmentRule augment = {};
};

}  // namespace mm::data
