// SPDX-License-Identifier: Apache-2.0
// make-fixture DIR [--preset NAME] [--samples N] [--shards N] [--image-size N]
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

#include "tests/trainer/make_fixture.h"

int main(int argc, char** argv) try {
  std::string folder, preset = "tiny";
  int samples = 64, shards = 4, image_size = 32;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] {
      if (i + 1 >= argc) throw std::invalid_argument("make-fixture: " + word + ": a value is needed");
      return std::string(argv[++i]);
    };
    if (word == "--preset")
      preset = value();
    else if (word == "--samples")
      samples = std::stoi(value());
    else if (word == "--shards")
      shards = std::stoi(value());
    else if (word == "--image-size")
      image_size = std::stoi(value());
    else if (folder.empty() && !word.starts_with("-"))
      folder = word;
    else
      throw std::invalid_argument("make-fixture: " + word + ": unknown");
  }
  if (folder.empty() || samples < 1 || shards < 1 || image_size < 8)
    throw std::invalid_argument("make-fixture DIR [--preset NAME] [--samples N] [--shards N] [--image-size N]");
  mm::fixture::write_model(folder + "/model", preset);
  mm::fixture::write_shards(folder + "/data", samples, shards, image_size);
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 2;
}
