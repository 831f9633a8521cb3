// SPDX-License-Identifier: Apache-2.0
// A block of zeroed memory at an address that never changes, whose pages can be given back to the system and come again as
// zeros at the next touch.
#pragma once

#include <cstddef>
#include <utility>

namespace mm::tensor {

class Region {
 public:
  Region() = default;
  explicit Region(size_t bytes);  // throws std::bad_alloc
  ~Region();
  Region(Region&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Region& operator=(Region&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // Gives back bytes [begin, end); both are multiples of page_bytes, or end is bytes().
  void release(size_t begin, size_t end) const;

  static constexpr size_t page_bytes = 4096;

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace mm::tensor
