// SPDX-License-Identifier: Apache-2.0
#include "agent/run/streams.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "common/error.h"

namespace mm::run {

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

bool read_some(int fd, std::string& to) {
  char buffer[1 << 14];
  const ssize_t n = ::read(fd, buffer, sizeof buffer);
  if (n > 0) to.assign(buffer, static_cast<size_t>(n));
  return n > 0;
}

UniqueFd signal_descriptor() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int s : {SIGTERM, SIGINT, SIGHUP, SIGCONT, SIGUSR1, SIGUSR2}) ::sigaddset(&set, s);
  if (::sigprocmask(SIG_BLOCK, &set, nullptr) != 0) throw system_error("sigprocmask", errno);
  ::signal(SIGPIPE, SIG_IGN);
  UniqueFd fd(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd) throw system_error("signalfd", errno);
  return fd;
}

std::vector<int> read_signals(int fd) {
  std::vector<int> out;
  signalfd_siginfo info;
  while (::read(fd, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) out.push_back(static_cast<int>(info.ssi_signo));
  return out;
}

}  // namespace mm::run
