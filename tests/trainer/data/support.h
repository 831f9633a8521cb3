// SPDX-License-Identifier: Apache-2.0
// What the tests of the loader share: a folder that goes away, pictures made here, shards made of parts.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/error.h"
#include "trainer/data/read/faults.h"
#include "trainer/data/sample.h"

namespace mm::data::test {

class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  std::string path(const std::string& name = "") const { return name.empty() ? folder_ : folder_ + "/" + name; }

 private:
  std::string folder_;
};

// Storage that fails as the hook says, as long as it is in scope.
struct Hooked {
  explicit Hooked(FaultHook hook) { set_fault_hook(std::move(hook)); }
  ~Hooked() { set_fault_hook({}); }
};

void write(const std::string& path, std::string_view content);

// A picture of one colour, and one in which every pixel says where it is.
Image plain(int width, int height, uint8_t red, uint8_t green, uint8_t blue);
Image gradient(int width, int height);

// PNG as libpng writes it: rows of `channels` x `depth` bits.
struct PngSpec {
  int width, height, depth, colour_type;
  bool interlaced = false;
  std::vector<std::vector<uint8_t>> palette = {};  // r, g, b, a
};
std::string make_png(const PngSpec& spec, const std::vector<uint8_t>& rows);
std::string make_jpeg(const Image& image, int quality, int orientation = 1);
// Of 1 (gray), 3 or 4 (ink, inverted) channels.
std::string make_jpeg_of(int width, int height, int channels, const std::vector<uint8_t>& values, int quality, int orientation = 1);
std::string make_webp(const Image& image, uint8_t alpha);
// 2 x 2: red, green / blue, transparent.
std::string small_gif();

// A tar of (name, content); `end` false leaves the end marker out.
std::string make_tar(const std::vector<std::pair<std::string, std::string>>& members, bool end = true);

// What `body` throws, which must be an Error of that status.
std::string error_of(int status, const std::function<void()>& body);

// The corpus of odd files, or "" where it is not there.
std::string corpus();

}  // namespace mm::data::test
