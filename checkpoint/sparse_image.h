// SPDX-License-Identifier: Apache-2.0
// A file image in memory that keeps only the pages written, and an HDF5 file driver that builds one. Space that a dataset
// merely reserved costs nothing, whatever its size; pages never written are zeros. Where the file's data lies already, the driver
// gives the library these places when it asks for room, and drops what it writes there.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>

namespace mm::checkpoint {

class SparseImage {
 public:
  void write(uint64_t offset, const void* data, size_t bytes);
  void read(uint64_t offset, void* data, size_t bytes) const;
  uint64_t size() const { return size_; }
  void resize(uint64_t size) { size_ = size; }

 private:
  std::unordered_map<uint64_t, std::string> pages_;
  uint64_t size_ = 0;
};

// Where data lies: offset and length of what the library will ask room for, in that order. All else goes behind `end`.
struct Placement {
  std::deque<std::pair<uint64_t, uint64_t>> data;
  uint64_t end = 0;
};

// Registers the driver for as long as it lives, and makes files of `access` go to `image`. Where the library fails, ok() is
// false.
class SparseImageDriver {
 public:
  SparseImageDriver(hid_t access, SparseImage& image, Placement* placement = nullptr);
  SparseImageDriver(const SparseImageDriver&) = delete;
  SparseImageDriver& operator=(const SparseImageDriver&) = delete;
  ~SparseImageDriver();
  bool ok() const { return ok_; }

 private:
  hid_t id_;
  bool ok_;
};

}  // namespace mm::checkpoint
