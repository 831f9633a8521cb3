// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/shard_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "common/error.h"
#include "trainer/data/read/faults.h"

namespace mm::data {
namespace {

constexpr int most_tries = 4;
constexpr std::chrono::milliseconds first_pause{20};  // doubles

}  // namespace

UniqueFd open_shard(const std::string& path, Shard& shard) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) throw system_error("data: open " + path, errno, exit_status::data);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw system_error("data: stat " + path, errno, exit_status::data);
  if (!S_ISREG(status.st_mode)) throw data_error("data: " + path + ": not a regular file");
  shard.path = path;
  shard.size = status.st_size;
  shard.modified_ns = int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  shard.inode = status.st_ino;
  return fd;
}

size_t read_shard(const Shard& shard, int fd, int64_t offset, char* to, size_t length) {
  size_t done = 0;
  auto pause = first_pause;
  for (int failures = 0; done < length;) {
    const int64_t at = offset + static_cast<int64_t>(done);
    const Fault fault = ask_fault({Op::read, shard.path, at, length - done});
    ssize_t n = -1;
    if (fault.error != 0)
      errno = fault.error;
    else
      n = ::pread(fd, to + done, std::min(length - done, fault.at_most), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EIO && ++failures < most_tries) {
      std::this_thread::sleep_for(pause);
      pause *= 2;
      continue;
    }
    if (n < 0) throw system_error("data: read " + shard.path + " at offset " + std::to_string(at), errno);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

std::shared_ptr<const UniqueFd> ShardFiles::get(uint32_t id, const Shard& shard) {
  const std::lock_guard lock(mutex_);
  if (const auto found = open_.find(id); found != open_.end()) {
    recent_.splice(recent_.begin(), recent_, found->second.used);
    return found->second.file;
  }
  Shard now;
  auto file = std::make_shared<const UniqueFd>(open_shard(shard.path, now));
  if (now.size != shard.size || now.modified_ns != shard.modified_ns || now.inode != shard.inode)
    throw data_error("data: " + shard.path + ": changed since it was opened");
  if (open_.size() >= most_open_) {
    open_.erase(recent_.back());
    recent_.pop_back();
  }
  recent_.push_front(id);
  open_[id] = {file, recent_.begin()};
  return file;
}

void ShardFiles::forget(uint32_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(id);
  if (found == open_.end()) return;
  recent_.erase(found->second.used);
  open_.erase(found);
}

}  // namespace mm::data
