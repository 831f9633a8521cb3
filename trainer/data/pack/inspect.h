// SPDX-License-Identifier: Apache-2.0
// What a sample, a loose picture or a loose sound holds, decoded to tell whether it can be used.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "trainer/data/dataset.h"
#include "trainer/data/sample.h"

namespace mm::data {

struct Inspection {
  std::string key;
  std::string reason;  // empty: nothing wrong
  int64_t pictures = 0;
  int width = 0, height = 0;         // of the first picture, upright
  std::array<double, 3> mean_rgb{};  // of the first picture, alpha on white
  int64_t caption_bytes = -1;        // -1: no txt
  int64_t sounds = 0;
  double seconds = 0;                // of the first sound
  int rate = 0, channels = 0;
  int64_t mel_frames = 0;
  bool repaired_text = false;
  bool unrelated = false;  // has no part that training reads
};

Inspection inspect_file(const std::string& path);
// Decodes every picture and sound of the sample and reads its text. Throws where the shard cannot be read.
Inspection inspect_sample(const Dataset& dataset, int64_t sample);

}  // namespace mm::data
