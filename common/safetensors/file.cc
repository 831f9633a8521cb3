// SPDX-License-Identifier: Apache-2.0
#include "common/safetensors/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>

namespace mm::safetensors {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian, and so is every machine that this is built for");

void read_at(const UniqueFd& fd, uint64_t offset, void* to, size_t bytes, const std::string& path) {
  char* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd.get(), at, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error("read " + path, errno, exit_status::data);
    if (n == 0) throw data_error(fmt::format("read {}: the file ends at byte {}", path, offset));
    at += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<size_t>(n);
  }
}

bool exists(const std::string& path) {
  struct stat s {};
  return ::stat(path.c_str(), &s) == 0;
}

}  // namespace

File::File(const std::string& path) : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  if (!fd_) throw system_error("open " + path, errno, exit_status::usage);
  struct stat s {};
  if (::fstat(fd_.get(), &s) != 0) throw system_error("stat " + path, errno, exit_status::usage);
  if (!S_ISREG(s.st_mode)) throw usage_error(path + ": not a regular file");
  const auto size = static_cast<uint64_t>(s.st_size);
  if (size < 8) throw usage_error(fmt::format("{}: {} bytes are too short for a safetensors file", path, size));
  uint64_t header = 0;
  read_at(fd_, 0, &header, 8, path);
  if (header > largest_header || header > size - 8)
    throw usage_error(fmt::format("{}: a header of {} bytes in a file of {} (at most {})", path, header, size, largest_header));
  std::string text(header, '\0');
  read_at(fd_, 8, text.data(), text.size(), path);
  tensors_ = parse_header(text, 8 + header, size - 8 - header, path);
}

void File::read(const TensorInfo& tensor, uint64_t offset, uint64_t bytes, void* to) const {
  read_at(fd_, tensor.begin + offset, to, bytes, path_);
}

std::map<std::string, std::string> placement(const std::string& folder) {
  const std::string index = folder + "/model.safetensors.index.json";
  if (exists(index)) {
    std::map<std::string, std::string> placed = parse_index(read_file(index), index);
    if (placed.empty()) throw usage_error(index + ": it places no tensor");
    return placed;
  }
  if (!exists(folder + "/model.safetensors"))
    throw usage_error(folder + ": neither model.safetensors nor model.safetensors.index.json is there");
  return {};
}

}  // namespace mm::safetensors
