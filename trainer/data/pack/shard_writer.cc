// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/pack/shard_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "common/error.h"
#include "trainer/data/tar.h"

namespace mm::data {

ShardWriter::ShardWriter(std::string folder, std::string prefix, ShardLimits limits)
    : folder_(std::move(folder)), prefix_(std::move(prefix)), limits_(limits) {}

void ShardWriter::write(const std::string& bytes) {
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const ssize_t n = ::write(fd_.get(), rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error("pack: write " + path_, errno);
    rest.remove_prefix(static_cast<size_t>(n));
  }
  shard_bytes_ += static_cast<int64_t>(bytes.size());
  bytes_ += static_cast<int64_t>(bytes.size());
}

void ShardWriter::add(const std::string& key, const std::vector<std::pair<std::string, std::string>>& parts) {
  std::string archive;
  for (const auto& [name, content] : parts) append_tar_member(archive, key + "." + name, content);
  if (fd_ && (shard_samples_ >= limits_.samples || shard_bytes_ + static_cast<int64_t>(archive.size()) + 1024 > limits_.bytes))
    close();
  if (!fd_) {
    path_ = fmt::format("{}/{}-{:05}.tar", folder_, prefix_, shards_++);
    fd_ = UniqueFd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!fd_) throw system_error("pack: create " + path_, errno);
    shard_samples_ = shard_bytes_ = 0;
  }
  write(archive);
  ++shard_samples_;
  ++samples_;
}

void ShardWriter::close() {
  std::string end;
  append_tar_end(end);
  write(end);
  if (::fsync(fd_.get()) != 0) throw system_error("pack: fsync " + path_, errno);
  fd_.reset();
}

void ShardWriter::finish() {
  if (fd_) close();
}

}  // namespace mm::data
