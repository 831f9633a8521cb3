// SPDX-License-Identifier: Apache-2.0
#include "agent/probes/kernel_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "common/error.h"
#include "common/log.h"

namespace mm::agent {
namespace {

constexpr int records_a_turn = 2000;
constexpr size_t block = 64 * 1024, longest_line = 16 * 1024;
constexpr milliseconds look_again{1000};  // for a file that is not there

uint64_t number_at(std::string_view text) {
  uint64_t out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

}  // namespace

KernelLog::KernelLog(Loop& loop, std::string path, const std::string& position, Handlers handlers)
    : loop_(loop), path_(std::move(path)), handlers_(std::move(handlers)), again_(loop) {
  if (position.starts_with("kmsg:")) {
    sequence_ = number_at(std::string_view(position).substr(5));
    have_sequence_ = true;
  } else if (position.starts_with("file:")) {
    const size_t second = position.find(':', 5);
    inode_ = number_at(std::string_view(position).substr(5));
    if (second != std::string::npos) offset_ = number_at(std::string_view(position).substr(second + 1));
  }
  open();
}

std::string KernelLog::position() const {
  if (device_) return have_sequence_ ? fmt::format("kmsg:{}", sequence_) : "";
  return fmt::format("file:{}:{}", inode_, offset_ - rest_.size());
}

void KernelLog::open() {
  fd_ = UniqueFd(::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat info = {};
  if (!fd_ || ::fstat(fd_.get(), &info) != 0) {
    log::debug("kernel log: open {}: {}", path_, std::strerror(errno));
    fd_.reset();
    again_.start(look_again, [this] { open(); });
    return;
  }
  device_ = S_ISCHR(info.st_mode);
  if (device_) {
    watch_ = FdWatch(loop_, fd_.get(), [this] { readable(); });
    return;
  }
  if (info.st_ino != inode_ || static_cast<uint64_t>(info.st_size) < offset_) offset_ = 0;  // another file, or begun anew
  inode_ = info.st_ino;
  rest_.clear();
  watch_file();
  loop_.post([this] { readable(); });
}

void KernelLog::watch_file() {
  watch_ = FdWatch();
  inotify_ = UniqueFd(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!inotify_ || ::inotify_add_watch(inotify_.get(), path_.c_str(), IN_MODIFY | IN_MOVE_SELF | IN_DELETE_SELF | IN_ATTRIB) < 0) {
    log::warn("kernel log: watch {}: {}", path_, std::strerror(errno));
    again_.start(look_again, [this] { open(); });
    return;
  }
  watch_ = FdWatch(loop_, inotify_.get(), [this] {
    alignas(inotify_event) char events[4096];
    while (::read(inotify_.get(), events, sizeof events) > 0) {}
    readable();
  });
}

void KernelLog::readable() {
  if (!fd_) return;
  const bool more = device_ ? read_records() : read_file();
  handlers_.turn();
  // The device stays readable; a file is asked for again.
  if (more && !device_ && !std::exchange(turn_pending_, true))
    loop_.post([this] {
      turn_pending_ = false;
      readable();
    });
}

// A record: "LEVEL,SEQUENCE,MICROSECONDS,FLAGS;text\n" and perhaps lines of " KEY=value".
bool KernelLog::read_records() {
  char buffer[8192 + 1];
  for (int i = 0; i < records_a_turn; ++i) {
    const ssize_t n = ::read(fd_.get(), buffer, sizeof buffer - 1);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EPIPE) {
      ++lost_;
      continue;
    }
    if (n < 0 && errno != EAGAIN) log::warn("kernel log: read {}: {}", path_, std::strerror(errno));
    if (n <= 0) return false;
    std::string_view record(buffer, static_cast<size_t>(n));
    record = record.substr(0, record.find('\n'));
    const size_t comma = record.find(',');
    if (comma == std::string_view::npos) continue;
    const uint64_t sequence = number_at(record.substr(comma + 1));
    if (have_sequence_ && sequence <= sequence_) continue;  // known from before the agent's restart
    sequence_ = sequence;
    have_sequence_ = true;
    handlers_.line(record);
  }
  return true;
}

bool KernelLog::read_file() {
  char buffer[block];
  for (int i = 0; i < 16; ++i) {
    const ssize_t n = ::pread(fd_.get(), buffer, sizeof buffer, static_cast<off_t>(offset_));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      // Rotated: another file has the name. Truncated: it is shorter than what was read.
      struct stat now = {}, named = {};
      if (::fstat(fd_.get(), &now) == 0 && static_cast<uint64_t>(now.st_size) < offset_) {
        offset_ = 0;
        rest_.clear();
        if (now.st_size > 0) continue;
      }
      if (::stat(path_.c_str(), &named) != 0 || named.st_ino != inode_) {
        again_.start(milliseconds(10), [this] { open(); });
      }
      return false;
    }
    offset_ += static_cast<uint64_t>(n);
    std::string_view news(buffer, static_cast<size_t>(n));
    for (size_t end; (end = news.find('\n')) != std::string_view::npos; news.remove_prefix(end + 1)) {
      if (rest_.empty()) {
        handlers_.line(news.substr(0, end));
      } else {
        rest_ += news.substr(0, end);
        handlers_.line(rest_);
        rest_.clear();
      }
    }
    if (rest_.size() + news.size() <= longest_line) rest_ += news;
  }
  return true;
}

}  // namespace mm::agent
