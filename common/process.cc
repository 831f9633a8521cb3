// SPDX-License-Identifier: Apache-2.0
#include "common/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/error.h"
#include "common/files.h"

namespace mm {
namespace {

constexpr size_t most_output = 16 << 20;

struct Pipe {
  UniqueFd read, write;
  Pipe() {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) throw system_error("pipe", errno);
    read = UniqueFd(fds[0]);
    write = UniqueFd(fds[1]);
  }
};

// Appends what is there; false at the end of the stream.
bool drain(int fd, std::string& to) {
  char buffer[1 << 15];
  const ssize_t n = ::read(fd, buffer, sizeof buffer);
  if (n > 0 && to.size() < most_output) to.append(buffer, static_cast<size_t>(n));
  return n > 0 || (n < 0 && errno == EINTR);
}

}  // namespace

CommandResult run_command(const std::vector<std::string>& argv, std::chrono::milliseconds deadline,
                          const std::vector<std::string>& environment) {
  Pipe out, err;
  std::vector<char*> arguments, env;
  for (const std::string& a : argv) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  for (char** e = environ; *e != nullptr; ++e) {
    bool replaced = false;
    for (const std::string& v : environment) {
      const size_t name = v.find('=') + 1;
      replaced = replaced || std::strncmp(*e, v.c_str(), name) == 0;
    }
    if (!replaced) env.push_back(*e);
  }
  for (const std::string& v : environment) env.push_back(const_cast<char*>(v.c_str()));
  env.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out.write.get(), 1);
  ::posix_spawn_file_actions_adddup2(&actions, err.write.get(), 2);
  sigset_t none, defaults;
  ::sigemptyset(&none);
  ::sigemptyset(&defaults);
  for (int s : {SIGPIPE, SIGTERM, SIGINT, SIGHUP, SIGCHLD}) ::sigaddset(&defaults, s);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = -1;
  const int failed = ::posix_spawnp(&pid, argv[0].c_str(), &actions, &attributes, arguments.data(), env.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (failed != 0) throw system_error("start " + argv[0], failed);
  out.write.reset();
  err.write.reset();

  CommandResult result;
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const auto end = std::chrono::steady_clock::now() + deadline;
  bool out_open = true, err_open = true, running = true;
  while (running || out_open || err_open) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    pollfd fds[3] = {{out_open ? out.read.get() : -1, POLLIN, 0}, {err_open ? err.read.get() : -1, POLLIN, 0}, {running ? pidfd.get() : -1, POLLIN, 0}};
    // A grandchild may hold the pipes open; once the program itself is gone, only what is already there is read.
    const int n = left <= 0 ? 0 : ::poll(fds, 3, running ? static_cast<int>(left) : 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      if (!running) break;
      result.timed_out = true;
      ::kill(-pid, SIGKILL);
      break;
    }
    if (fds[0].revents != 0) out_open = drain(out.read.get(), result.out);
    if (fds[1].revents != 0) err_open = drain(err.read.get(), result.err);
    if (fds[2].revents != 0) running = false;
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  result.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

}  // namespace mm
