// SPDX-License-Identifier: Apache-2.0
#include "agent/run/srun_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <utility>

#include "common/error.h"

namespace mm::run {

SrunProcess::SrunProcess(const std::vector<std::string>& argv, const std::vector<std::string>& environment, int error_pipe,
                         const std::vector<int>& inherited) {
  std::vector<char*> arguments, variables;
  for (const std::string& a : argv) arguments.push_back(const_cast<char*>(a.c_str()));
  for (const std::string& v : environment) variables.push_back(const_cast<char*>(v.c_str()));
  arguments.push_back(nullptr);
  variables.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, error_pipe, 2);
  // A descriptor duplicated onto itself loses close-on-exec.
  for (const int fd : inherited) ::posix_spawn_file_actions_adddup2(&actions, fd, fd);
  sigset_t none, defaults;
  ::sigemptyset(&none);
  ::sigfillset(&defaults);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int failed = ::posix_spawnp(&pid_, argv[0].c_str(), &actions, &attributes, arguments.data(), variables.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (failed != 0) throw system_error("start " + argv[0], failed, exit_status::usage);
  pidfd_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  if (!pidfd_) throw system_error("pidfd_open of " + argv[0], errno);
}

SrunProcess::~SrunProcess() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  reap();
}

void SrunProcess::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

std::vector<UniqueFd> SrunProcess::kill() const {
  std::vector<UniqueFd> children;
  std::ifstream list("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) + "/children");
  for (pid_t child = 0; list >> child;)
    if (UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0))); fd) children.push_back(std::move(fd));
  signal(SIGKILL);
  return children;
}

int SrunProcess::reap() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return status;
}

Pipe make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) throw system_error("pipe", errno);
  Pipe pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
  if (::fcntl(fds[0], F_SETFL, O_NONBLOCK) != 0) throw system_error("pipe: fcntl", errno);
  return pipe;
}

UniqueFd memory_file(const std::string& content) {
  UniqueFd fd(::memfd_create("hostfile", MFD_CLOEXEC));
  if (!fd) throw system_error("memfd_create", errno);
  if (::pwrite(fd.get(), content.data(), content.size(), 0) != static_cast<ssize_t>(content.size()))
    throw system_error("write hostfile", errno);
  return fd;
}

std::vector<std::string> LineCutter::add(std::string_view bytes) {
  constexpr size_t longest = 64 << 10;
  std::vector<std::string> lines;
  for (const char c : bytes) {
    if (c != '\n') rest_ += c;
    if (c == '\n' || rest_.size() >= longest) {
      lines.push_back(std::move(rest_));
      rest_.clear();
    }
  }
  return lines;
}

}  // namespace mm::run
