// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/io.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>

namespace mm::checkpoint::io {
namespace {

Hook the_hook;

const std::string no_path;

Fault ask(const Operation& operation) {
  return the_hook ? the_hook(operation) : Fault{};
}

// Throws where the hook wants the operation to fail.
Fault admit(const char* verb, const Operation& operation) {
  const Fault fault = ask(operation);
  if (fault.error != 0) throw Failure(std::string(verb) + " " + operation.path, fault.error);
  return fault;
}
Fault admit(Op op, const char* verb, const std::string& path) {
  return admit(verb, {op, path, no_path});
}

void check_regular(int fd, const std::string& path) {
  struct stat s {};
  if (::fstat(fd, &s) != 0) throw Failure("stat " + path, errno);
  if (!S_ISREG(s.st_mode)) throw Failure("open " + path + ", which is no regular file", EINVAL);
}

}  // namespace

void set_hook(Hook hook) {
  the_hook = std::move(hook);
}

Failure::Failure(const std::string& what, int errno_value)
    : Error(exit_status::data, "checkpoint: " + what + ": " + std::generic_category().message(errno_value)),
      number(errno_value) {}

bool Failure::is_of_content() const {
  switch (number) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ENODATA:
    case EINVAL:
    case EFBIG:
    case ELOOP:
    case ENXIO:
      return true;
    default:
      return false;
  }
}

File File::create(const std::string& path) {
  admit(Op::create, "create", path);
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd) throw Failure("create " + path, errno);
  return File(std::move(fd), path);
}

File File::open(const std::string& path) {
  admit(Op::open, "open", path);
  // A FIFO must not block; for a regular file O_NONBLOCK means nothing.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fd) throw Failure("open " + path, errno);
  check_regular(fd.get(), path);
  return File(std::move(fd), path);
}

uint64_t File::size() const {
  struct stat s {};
  if (::fstat(fd_.get(), &s) != 0) throw Failure("stat " + path_, errno);
  return static_cast<uint64_t>(s.st_size);
}

void File::allocate(uint64_t bytes) {
  if (bytes == 0) return;
  admit("allocate", {Op::allocate, path_, no_path, 0, nullptr, bytes});
  int result;
  do result = ::fallocate(fd_.get(), 0, 0, static_cast<off_t>(bytes));
  while (result != 0 && errno == EINTR);
  if (result == 0) return;
  if (errno != EOPNOTSUPP && errno != ENOSYS) throw Failure("allocate " + path_, errno);
  if (::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) throw Failure("allocate " + path_, errno);
}

void File::write(const void* data, size_t bytes, uint64_t offset) {
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const Fault fault = admit("write", {Op::write, path_, no_path, offset, p, bytes});
    const ssize_t n = ::pwrite(fd_.get(), p, std::min(bytes, fault.at_most), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Failure("write " + path_, errno);
    if (n == 0) throw Failure("write " + path_, ENOSPC);
    p += n;
    bytes -= static_cast<size_t>(n);
    offset += static_cast<uint64_t>(n);
  }
}

void File::read(void* data, size_t bytes, uint64_t offset) const {
  char* p = static_cast<char*>(data);
  while (bytes > 0) {
    const Fault fault = admit("read", {Op::read, path_, no_path, offset, nullptr, bytes});
    const ssize_t n = ::pread(fd_.get(), p, std::min(bytes, fault.at_most), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Failure("read " + path_, errno);
    if (n == 0) throw Failure("read " + path_ + " at byte " + std::to_string(offset) + ", where it ends", ENODATA);
    p += n;
    bytes -= static_cast<size_t>(n);
    offset += static_cast<uint64_t>(n);
  }
}

void File::start_writeback(uint64_t offset, uint64_t bytes) const noexcept {
  ::sync_file_range(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes), SYNC_FILE_RANGE_WRITE);
}

void File::will_need(uint64_t offset, uint64_t bytes) const noexcept {
  ::posix_fadvise(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
}

void File::sync() {
  admit(Op::sync, "fsync", path_);
  if (::fsync(fd_.get()) != 0) throw Failure("fsync " + path_, errno);
}

void File::close() {
  admit(Op::close, "close", path_);
  const int fd = fd_.release();
  // After EINTR the descriptor is gone on Linux, and what fsync made durable stays so.
  if (::close(fd) != 0 && errno != EINTR) throw Failure("close " + path_, errno);
}

void write_file(const std::string& path, const std::string& content) {
  File file = File::create(path);
  file.write(content.data(), content.size(), 0);
  file.sync();
  file.close();
}

std::string read_file(const std::string& path, uint64_t limit) {
  const File file = File::open(path);
  const uint64_t size = file.size();
  if (size > limit) throw Failure("read " + path, EFBIG);
  std::string out(size, '\0');
  file.read(out.data(), out.size(), 0);
  return out;
}

bool make_folder(const std::string& path) {
  admit(Op::make_folder, "create folder", path);
  if (::mkdir(path.c_str(), 0777) == 0) return true;
  if (errno == EEXIST && is_folder(path)) return false;
  throw Failure("create folder " + path, errno);
}

void sync_folder(const std::string& path) {
  admit(Op::sync_folder, "fsync folder", path);
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) throw Failure("fsync folder " + path, errno);
}

std::vector<std::string> list_folder(const std::string& path) {
  admit(Op::list, "list folder", path);
  std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), ::closedir);
  if (!dir) throw Failure("list folder " + path, errno);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(dir.get());
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  if (errno != 0) throw Failure("list folder " + path, errno);
  std::sort(names.begin(), names.end());
  return names;
}

bool exists(const std::string& path) {
  struct stat s {};
  return ::lstat(path.c_str(), &s) == 0;
}

bool is_folder(const std::string& path) {
  struct stat s {};
  return ::stat(path.c_str(), &s) == 0 && S_ISDIR(s.st_mode);
}

void rename(const std::string& from, const std::string& to) {
  admit("rename", {Op::rename, from, to});
  if (::rename(from.c_str(), to.c_str()) != 0) throw Failure("rename " + from + " to " + to, errno);
}

bool link(const std::string& from, const std::string& to) {
  admit("link", {Op::link, from, to});
  if (::link(from.c_str(), to.c_str()) == 0) return true;
  if (errno == EEXIST) return false;
  throw Failure("link " + from + " to " + to, errno);
}

bool exchange(const std::string& a, const std::string& b) {
  int reason = ask({Op::exchange, a, b}).error;
  if (reason == 0) {
    if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
    reason = errno;
  }
  if (reason == EINVAL || reason == ENOSYS || reason == EOPNOTSUPP) return false;
  throw Failure("exchange " + a + " and " + b, reason);
}

void remove_tree(const std::string& path) {
  struct stat s {};
  if (::lstat(path.c_str(), &s) != 0) {
    if (errno == ENOENT) return;
    throw Failure("remove " + path, errno);
  }
  if (S_ISDIR(s.st_mode)) {
    for (const std::string& name : list_folder(path)) remove_tree(path + "/" + name);
  }
  admit(Op::remove, "remove", path);
  const int result = S_ISDIR(s.st_mode) ? ::rmdir(path.c_str()) : ::unlink(path.c_str());
  if (result != 0 && errno != ENOENT) throw Failure("remove " + path, errno);
}

}  // namespace mm::checkpoint::io
