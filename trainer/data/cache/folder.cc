// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/cache/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <thread>

#include "common/error.h"

namespace mm::data {
namespace {

constexpr std::chrono::milliseconds first_pause{1}, longest_pause{50};
constexpr std::chrono::seconds longest_count{20};

}  // namespace

UniqueFd open_private_folder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) throw system_error("data: cache: create folder " + folder, errno, exit_status::usage);
  UniqueFd root(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!root) throw system_error("data: cache: open folder " + folder, errno, exit_status::usage);
  struct stat status {};
  if (::fstat(root.get(), &status) != 0) throw system_error("data: cache: stat " + folder, errno, exit_status::usage);
  if (status.st_uid != ::geteuid())
    throw usage_error(fmt::format("data: cache: {}: belongs to user {}, not to user {}", folder, status.st_uid, ::geteuid()));
  if ((status.st_mode & 077) != 0)
    throw usage_error(fmt::format("data: cache: {}: is open to other users (mode {:04o}); chmod 700 closes it", folder, status.st_mode & 07777));
  return root;
}

UniqueFd open_cache_lock(int root, const std::string& folder) {
  UniqueFd fd(::openat(root, cache_lock_name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) throw system_error(fmt::format("data: cache: open {}/{}", folder, cache_lock_name), errno);
  return fd;
}

bool lock_cache_bytes(int fd, off_t start, off_t length, std::chrono::milliseconds patience) {
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = start;
  range.l_len = length;
  // The kernel tells nobody when such a lock gets free before a deadline: it is asked again.
  const auto end = std::chrono::steady_clock::now() + patience;
  for (auto pause = first_pause;; pause = std::min(2 * pause, longest_pause)) {
    if (::fcntl(fd, F_OFD_SETLK, &range) == 0) return true;
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) throw system_error(fmt::format("data: cache: lock {}", cache_lock_name), errno);
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(pause);
  }
}

CacheLedger::CacheLedger(int root, const std::string& folder) : fd_(open_cache_lock(root, folder)) {
  if (!lock_cache_bytes(fd_.get(), 0, sizeof used, longest_count))
    throw Error(exit_status::internal, fmt::format("data: cache: {}/{}: another process holds it for too long", folder, cache_lock_name));
  if (::pread(fd_.get(), &used, sizeof used, 0) != sizeof used || used < 0) used = 0;
}

void CacheLedger::write() {
  if (::pwrite(fd_.get(), &used, sizeof used, 0) != sizeof used) throw system_error(fmt::format("data: cache: write {}", cache_lock_name), errno);
}

std::vector<CachedFile> list_cached_files(int root, const std::string& folder) {
  UniqueFd fd(::openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  std::unique_ptr<DIR, int (*)(DIR*)> dir(fd ? ::fdopendir(fd.get()) : nullptr, ::closedir);
  if (!dir) throw system_error("data: cache: list " + folder, errno);
  fd.release();
  std::vector<CachedFile> files;
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::optional<Hash128> name = parse_hash(entry->d_name);
    struct stat status {};
    if (name && ::fstatat(root, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode))
      files.push_back({*name, status.st_size});
  }
  return files;
}

}  // namespace mm::data
