// SPDX-License-Identifier: Apache-2.0
// The HDF5 library with C++ lifetimes and errors that say what was done. Only what builds files in memory includes this.
#pragma once

#include <hdf5.h>

#include <string>
#include <utility>

#include "checkpoint/checkpoint.h"

namespace mm::checkpoint::hdf5 {

// Throws an Error with the library's innermost reason.
[[noreturn]] void fail(const std::string& what);
void check(herr_t result, const std::string& what);

// An HDF5 object; close() reports what the library says then, the destructor only frees.
class Handle {
 public:
  Handle(hid_t id, herr_t (*closer)(hid_t), const std::string& what) : id_(id), close_(closer) {
    if (id_ < 0) fail(what);
  }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&&) = delete;
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  void close(const std::string& what) { check(close_(std::exchange(id_, -1)), what); }
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

// The library prints its errors by default; ours carry them.
class QuietErrors {
 public:
  QuietErrors() {
    H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  QuietErrors(const QuietErrors&) = delete;
  QuietErrors& operator=(const QuietErrors&) = delete;
  ~QuietErrors() { H5Eset_auto2(H5E_DEFAULT, function_, data_); }

 private:
  H5E_auto2_t function_ = nullptr;
  void* data_ = nullptr;
};

// A float of 2 bytes: sign, exponent, fraction from the top.
Handle small_float(size_t exponent_bits, size_t fraction_bits, const char* what);
// What HDF5 1.8 has no type for, booleans and 8-bit floats, lies there as bytes; the attribute dtype says what they are.
hid_t library_type(DType dtype, hid_t bfloat16, hid_t float16);
Handle space_of(const Extents& shape);
void set_text(hid_t object, const char* attribute, const std::string& value);
void set_extents(hid_t object, const char* attribute, const Extents& value);

}  // namespace mm::checkpoint::hdf5
