// SPDX-License-Identifier: Apache-2.0
// Many reads of files at once, by one thread: through io_uring, where the kernel lets us, else one pread after another. Short and
// interrupted reads are continued either way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace mm::data {

struct FileRead {
  int fd = -1;
  const std::string* path = nullptr;
  int64_t offset = 0;
  std::span<char> to;
  size_t done = 0;  // less than to.size() at the end of the file or where there is an error
  int error = 0;    // an errno
};

class ReadEngine {
 public:
  enum class Kind { automatic, plain };
  explicit ReadEngine(Kind kind = Kind::automatic, unsigned depth = 64);
  ~ReadEngine();
  bool at_once() const { return ring_ != nullptr; }
  // Returns when all have ended, well or not. One thread at a time. A read that has got some bytes goes on where it stopped.
  void run(std::span<FileRead> reads);

 private:
  struct Ring;
  std::unique_ptr<Ring> ring_;  // none: pread
};

}  // namespace mm::data
