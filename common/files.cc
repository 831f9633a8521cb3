// SPDX-License-Identifier: Apache-2.0
#include "common/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "common/error.h"

namespace mm {

void UniqueFd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::string read_file(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) throw system_error("open " + path, errno, exit_status::usage);
  std::string out;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error("read " + path, errno);
    if (n == 0) return out;
    out.append(buffer, static_cast<size_t>(n));
  }
}

void write_file_durably(const std::string& path, std::string_view content) {
  const std::string temporary = path + ".tmp" + std::to_string(::getpid());
  {
    UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!fd) throw system_error("create " + temporary, errno);
    while (!content.empty()) {
      const ssize_t n = ::write(fd.get(), content.data(), content.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        const int reason = errno;
        ::unlink(temporary.c_str());
        throw system_error("write " + temporary, reason);
      }
      content.remove_prefix(static_cast<size_t>(n));
    }
    if (::fsync(fd.get()) != 0) throw system_error("fsync " + temporary, errno);
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) throw system_error("rename " + temporary + " to " + path, errno);
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  UniqueFd dir(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir || ::fsync(dir.get()) != 0) throw system_error("fsync folder " + folder, errno);
}

}  // namespace mm
