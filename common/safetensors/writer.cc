// SPDX-License-Identifier: Apache-2.0
#include "common/safetensors/writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <set>

#include "common/error.h"

namespace mm::safetensors {
namespace {

void write_all(int fd, const char* data, size_t bytes, const std::string& path) {
  while (bytes > 0) {
    const ssize_t n = ::write(fd, data, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error("write " + path, errno);
    data += n;
    bytes -= static_cast<size_t>(n);
  }
}

void sync_folder(const std::string& path) {
  const std::string folder = path.empty() ? "." : path;
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) throw system_error("fsync " + folder, errno);
}

}  // namespace

Writer::Writer(const std::string& path, std::vector<std::pair<std::string, TensorInfo>> tensors)
    : path_(path), temporary_(fmt::format("{}.tmp{}", path, ::getpid())), tensors_(std::move(tensors)) {
  std::sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) {
    return std::pair(element_size(b.second.dtype), a.first) < std::pair(element_size(a.second.dtype), b.first);
  });
  std::set<std::string_view> names;
  for (auto& [name, info] : tensors_) {
    info.begin = left_;
    info.end = left_ += static_cast<uint64_t>(info.elements()) * element_size(info.dtype);
    if (!names.insert(name).second) throw usage_error(fmt::format("{}: tensor {} is given twice", path, name));
  }
  fd_ = UniqueFd(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!fd_) throw system_error("create " + temporary_, errno);
  const std::string header = format_header(tensors_);
  write_all(fd_.get(), header.data(), header.size(), temporary_);
}

Writer::~Writer() {
  if (fd_) ::unlink(temporary_.c_str());
}

void Writer::append(const void* data, size_t bytes) {
  if (bytes > left_) throw Error(exit_status::internal, path_ + ": more data than its tensors have");
  write_all(fd_.get(), static_cast<const char*>(data), bytes, temporary_);
  left_ -= bytes;
}

void Writer::finish() {
  if (left_ > 0) throw Error(exit_status::internal, fmt::format("{}: {} bytes of data are missing", path_, left_));
  if (::fsync(fd_.get()) != 0) throw system_error("fsync " + temporary_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw system_error("rename " + temporary_, errno);
  fd_.reset();
  sync_folder(std::filesystem::path(path_).parent_path().string());
}

}  // namespace mm::safetensors
