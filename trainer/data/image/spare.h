// SPDX-License-Identifier: Apache-2.0
// Pixel buffers that a thread uses again: to fill half a megabyte with zeros, and to have its pages mapped, takes a tenth of the time
// that a picture takes to decode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace mm::data {

inline constexpr size_t most_spare_buffers = 2, largest_spare_buffer = size_t{16} << 20;

inline std::vector<std::vector<uint8_t>>& spare_buffers() {
  thread_local std::vector<std::vector<uint8_t>> spare;
  return spare;
}

// `size` bytes of any content.
inline std::vector<uint8_t> buffer_of(size_t size) {
  std::vector<uint8_t> buffer;
  if (auto& spare = spare_buffers(); !spare.empty()) {
    buffer = std::move(spare.back());
    spare.pop_back();
  }
  buffer.resize(size);
  return buffer;
}

inline void give_back(std::vector<uint8_t>&& buffer) {
  auto& spare = spare_buffers();
  if (spare.size() < most_spare_buffers && buffer.capacity() <= largest_spare_buffer) spare.push_back(std::move(buffer));
}

}  // namespace mm::data
