// SPDX-License-Identifier: Apache-2.0
// `mm-trainer sample RUN IMAGE...`: captions, one greedy choice after another.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mm::loop {

struct SampleOptions {
  std::string run;
  std::vector<std::string> images;
  int64_t max_tokens = 64;
  int threads = 0;
  bool json = false;
};

// Prints a caption for each picture. Returns 0, or 3 where a picture could not be used (the others are captioned all the same).
int sample(const SampleOptions& options);

}  // namespace mm::loop
