// SPDX-License-Identifier: Apache-2.0
// From the parts of one sample to what the model takes: which parts are pictures and which are text, decoding, resizing,
// tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/data/text/sequence.h"

namespace mm::data {

// The parts that count, images in order: "png" before "0.png", "1.png", ..., by number.
struct SampleParts {
  std::vector<Part> images;
  const Part* text = nullptr;  // K.txt, else
  const Part* json = nullptr;  // K.json
};
// Throws Unusable where a part occurs twice.
SampleParts sample_parts(const Dataset& dataset, int64_t sample);
// The content of a part. Throws Unusable where it is larger than any real one.
inline constexpr int64_t largest_image_file = int64_t{256} << 20, largest_text = int64_t{16} << 20;
std::string read_part(const Dataset& dataset, int64_t sample, const Part& part);
// Whether the part's name ends as a picture's: "png", "3.jpeg".
bool is_image_part(std::string_view name);

struct MadeSample {
  Sample sample;
  bool repaired_text = false;
};
// Where the rule has random changes, they are those of this seed and position in the stream.
struct SampleTurn {
  int64_t seed = 0, position = 0;
};
// Without a turn nothing is random. Throws Unusable with the reason, or the Error of a failed read.
MadeSample make_sample(const Dataset& dataset, int64_t sample, const SequenceRule& rule, const std::optional<SampleTurn>& turn = {});
// What a made sample will take in memory, from the index alone.
int64_t estimated_bytes(const Dataset& dataset, int64_t sample, const SequenceRule& rule);

}  // namespace mm::data
