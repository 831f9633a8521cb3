// SPDX-License-Identifier: Apache-2.0
// Owned file descriptors and whole-file helpers. Every failure throws an Error that names the file and the reason.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace mm {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~UniqueFd() { reset(); }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void reset();
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

std::string read_file(const std::string& path);
// Writes a temporary file beside `path`, fsyncs it, renames it over `path` and fsyncs the folder.
void write_file_durably(const std::string& path, std::string_view content);

}  // namespace mm
