// SPDX-License-Identifier: Apache-2.0
#include "agent/registry/processes.h"

#include <dirent.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>

#include "common/error.h"

namespace mm::agent {
namespace {

bool send_signal(const ProcessId& process, int signal) {
  const UniqueFd fd = open_process(process);
  return fd && ::syscall(SYS_pidfd_send_signal, fd.get(), signal, nullptr, 0) == 0;
}

// A stop takes effect when the process leaves the kernel, and a fork that is under way there still makes a child. So the stop is waited
// for before children are looked for; not for long, since a process that waits for a disk cannot be stopped.
void stop(const ProcessId& process) {
  constexpr int looks = 200;
  if (!send_signal(process, SIGSTOP)) return;
  for (int i = 0; i < looks; ++i) {
    const auto stat = process_stat(process.pid);
    if (!stat || stat->start != process.start || stat->state == 'T' || stat->state == 't' || stat->state == 'Z' || stat->state == 'X') return;
    ::usleep(i < 20 ? 50 : 1000);
  }
}

std::multimap<pid_t, pid_t> children_by_parent() {
  std::multimap<pid_t, pid_t> out;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), ::closedir);
  if (!proc) return out;
  while (const dirent* entry = ::readdir(proc.get())) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid <= 0) continue;
    if (const auto stat = process_stat(pid)) out.emplace(stat->parent, pid);
  }
  return out;
}

}  // namespace

std::optional<ProcessStat> parse_process_stat(const std::string& text) {
  const size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  ProcessStat stat;
  stat.name = text.substr(open + 1, close - open - 1);
  std::istringstream rest(text.substr(close + 1));
  rest >> stat.state >> stat.parent;
  std::string skipped;
  for (int field = 5; field <= 21; ++field) rest >> skipped;
  rest >> stat.start;
  if (!rest) return std::nullopt;
  return stat;
}

std::optional<ProcessStat> process_stat(pid_t pid) {
  try {
    return parse_process_stat(read_file(fmt::format("/proc/{}/stat", pid)));
  } catch (const Error&) {
    return std::nullopt;  // it has ended
  }
}

std::optional<ProcessId> identify(pid_t pid) {
  const auto stat = process_stat(pid);
  if (!stat || stat->state == 'Z' || stat->state == 'X') return std::nullopt;
  return ProcessId{pid, stat->start};
}

bool alive(const ProcessId& process) { return process.pid > 0 && identify(process.pid) == process; }

UniqueFd open_process(const ProcessId& process) {
  if (process.pid <= 0) return UniqueFd();
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  // Checked after the descriptor is open: from here on it names this process and no later one.
  if (!fd || !alive(process)) return UniqueFd();
  return fd;
}

bool kill_process(const ProcessId& process) { return send_signal(process, SIGKILL); }

std::vector<pid_t> with_ancestors(pid_t pid) {
  std::vector<pid_t> out;
  while (pid > 1 && out.size() < 64) {
    out.push_back(pid);
    const auto stat = process_stat(pid);
    if (!stat) break;
    pid = stat->parent;
  }
  return out;
}

std::optional<ProcessId> ancestor_named(pid_t pid, const std::string& name) {
  for (pid_t p : with_ancestors(pid)) {
    const auto stat = process_stat(p);
    if (p != pid && stat && stat->name == name) return ProcessId{p, stat->start};
  }
  return std::nullopt;
}

int kill_tree(const ProcessId& root) {
  if (!alive(root)) return 0;
  std::vector<ProcessId> tree = {root};
  stop(root);
  // Until a scan finds nothing new: what is stopped cannot fork.
  for (bool grown = true; grown;) {
    grown = false;
    const auto children = children_by_parent();
    for (size_t i = 0; i < tree.size(); ++i) {
      const auto [begin, end] = children.equal_range(tree[i].pid);
      for (auto it = begin; it != end; ++it) {
        const auto child = identify(it->second);
        if (!child || std::find(tree.begin(), tree.end(), *child) != tree.end()) continue;
        stop(*child);
        tree.push_back(*child);
        grown = true;
      }
    }
  }
  int killed = 0;
  for (const ProcessId& p : tree) killed += kill_process(p) ? 1 : 0;
  return killed;
}

}  // namespace mm::agent
