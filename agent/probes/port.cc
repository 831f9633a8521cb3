// SPDX-License-Identifier: Apache-2.0
#include "agent/probes/port.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>

#include "agent/probes/netlink.h"
#include "common/files.h"

namespace mm::agent {
namespace {

// Nothing where the kernel has no sock_diag for this family.
std::optional<bool> listening(int fd, uint8_t family, uint16_t port) {
  struct {
    nlmsghdr header;
    inet_diag_req_v2 diag;
  } request = {};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.diag.sdiag_family = family;
  request.diag.sdiag_protocol = IPPROTO_TCP;
  request.diag.idiag_states = 1u << TCP_LISTEN;
  if (::send(fd, &request, sizeof request, 0) < 0) return std::nullopt;
  alignas(nlmsghdr) char buffer[32768];
  bool found = false;
  for (;;) {
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return std::nullopt;
    bool done = false, failed = false;
    for_each_message(buffer, static_cast<size_t>(n), [&](const nlmsghdr& header, const char* payload, size_t length) {
      done = done || header.nlmsg_type == NLMSG_DONE;
      failed = failed || header.nlmsg_type == NLMSG_ERROR;
      if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || length < sizeof(inet_diag_msg)) return;
      found = found || ntohs(reinterpret_cast<const inet_diag_msg*>(payload)->id.idiag_sport) == port;
    });
    if (failed) return std::nullopt;
    if (done) return found;
  }
}

}  // namespace

std::optional<bool> port_is_listening(uint16_t port) {
  UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!fd) return std::nullopt;
  const timeval patience = {0, 300000};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const auto four = listening(fd.get(), AF_INET, port);
  if (four == true) return true;
  const auto six = listening(fd.get(), AF_INET6, port);
  if (six == true) return true;
  return four;
}

const char* describe(PortAnswer answer) {
  switch (answer) {
    case PortAnswer::open: return "open";
    case PortAnswer::closed: return "closed";
    case PortAnswer::silent: return "does not answer";
  }
  return "";
}

PortAnswer connect_to_port(const std::string& address, uint16_t port, std::chrono::milliseconds deadline) {
  addrinfo hints = {}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &list) != 0) return PortAnswer::silent;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(list, ::freeaddrinfo);
  const UniqueFd fd(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return PortAnswer::silent;
  if (::connect(fd.get(), list->ai_addr, list->ai_addrlen) == 0) return PortAnswer::open;
  if (errno == ECONNREFUSED) return PortAnswer::closed;
  if (errno != EINPROGRESS) return PortAnswer::silent;
  const auto end = std::chrono::steady_clock::now() + deadline;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    pollfd p = {fd.get(), POLLOUT, 0};
    const int n = ::poll(&p, 1, left < 0 ? 0 : static_cast<int>(left));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return PortAnswer::silent;
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    return error == 0 ? PortAnswer::open : error == ECONNREFUSED ? PortAnswer::closed : PortAnswer::silent;
  }
}

}  // namespace mm::agent
