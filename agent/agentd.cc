// SPDX-License-Identifier: Apache-2.0
// mm-agentd: the daemon of a node. See mm-agentd(8).
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "agent/daemon/agent.h"
#include "agent/daemon/topology.h"
#include "common/error.h"
#include "common/log.h"
#include "common/version.h"

namespace {

// sd_notify(3), which is one datagram.
void notify_service_manager(const std::string& text) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path == nullptr || std::strlen(path) >= sizeof address.sun_path) return;
  std::strcpy(address.sun_path, path);
  if (path[0] == '@') address.sun_path[0] = '\0';  // an abstract socket
  const mm::UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path));
  if (fd) ::sendto(fd.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&address), size);
}

// Never starved into a false verdict, as far as we are allowed to.
void raise_own_priority() {
  // On fault: what is used stays in memory, and the unused part of the threads' stacks costs none.
  if (::mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0) mm::log::debug("mlockall: {}", std::strerror(errno));
  if (::setpriority(PRIO_PROCESS, 0, -10) != 0) mm::log::debug("setpriority: {}", std::strerror(errno));
  rlimit files = {};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The agent of a node: watches its hardware and the ranks of jobs, and acts on faults.", "mm-agentd");
  std::string config = mm::Site::default_path, node;
  bool verbose = false, foreground = false;
  app.set_version_flag("--version", mm::version_line("mm-agentd"));
  app.add_option("--config", config, "The site's configuration, see mm-train.conf(5)");
  app.add_option("--node", node, "Name of this node in Slurm; default: the host name up to the first dot");
  app.add_flag("--foreground", foreground, "Stay in the foreground; it always does");
  app.add_flag("--verbose", verbose, "Log more");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? mm::exit_status::ok : mm::exit_status::usage;
  }
  mm::log::init("mm-agentd", verbose ? mm::log::Level::debug : mm::log::Level::info);
  try {
    const mm::Site site = mm::load_site(config);
    if (node.empty()) node = mm::this_node();
    ::signal(SIGPIPE, SIG_IGN);
    raise_own_priority();
    mm::agent::Loop loop;
    mm::agent::Agent agent(loop, site, node);
    agent.start();
    mm::agent::share_topology(loop, site, node);
    loop.on_signals({SIGTERM, SIGINT, SIGHUP}, [&](int signal) {
      if (signal == SIGHUP) {
        notify_service_manager("RELOADING=1");
        try {
          agent.reload(mm::load_site(config));
          mm::log::info("{} is read again", config);
        } catch (const mm::Error& e) {
          mm::log::error("{}: the configuration before stays", e.what());
        }
        notify_service_manager("READY=1");
        return;
      }
      mm::log::info("ends: {}", ::strsignal(signal));
      notify_service_manager("STOPPING=1");
      agent.stop();
      loop.stop();
    });
    mm::agent::Timer watchdog(loop);
    if (const char* microseconds = std::getenv("WATCHDOG_USEC"); microseconds != nullptr && std::atoll(microseconds) > 0)
      watchdog.repeat(mm::agent::milliseconds(std::atoll(microseconds) / 3000), [] { notify_service_manager("WATCHDOG=1"); });
    notify_service_manager("READY=1");
    loop.run();
    return mm::exit_status::ok;
  } catch (const mm::Error& e) {
    mm::log::error("{}", e.what());
    return e.status;
  } catch (const std::exception& e) {
    mm::log::error("{}", e.what());
    return mm::exit_status::internal;
  }
}
