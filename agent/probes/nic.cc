// SPDX-License-Identifier: Apache-2.0
#include "agent/probes/nic.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "agent/probes/netlink.h"
#include "common/error.h"

namespace mm::agent {
namespace {

// Linux's IFF_LOWER_UP, which <net/if.h> does not have.
constexpr unsigned lower_up = 1u << 16;

}  // namespace

std::string NicState::describe() const {
  if (!present) return "removed";
  if (!up) return "set down";
  return carrier ? "carrier" : "carrier lost";
}

std::map<std::string, NicState> parse_link_messages(const char* data, size_t size, bool* done) {
  std::map<std::string, NicState> out;
  for_each_message(data, size, [&](const nlmsghdr& header, const char* payload, size_t length) {
    if (header.nlmsg_type == NLMSG_DONE && done != nullptr) *done = true;
    if ((header.nlmsg_type != RTM_NEWLINK && header.nlmsg_type != RTM_DELLINK) || length < sizeof(ifinfomsg)) return;
    const auto& info = *reinterpret_cast<const ifinfomsg*>(payload);
    // Bridges repeat the state of a port in messages of their own family, which know less.
    if (info.ifi_family != AF_UNSPEC) return;
    std::string name;
    for_each_attribute(payload + netlink_aligned(sizeof(ifinfomsg)), length - sizeof(ifinfomsg), [&](unsigned short type, const char* value, size_t n) {
      if (type == IFLA_IFNAME) name.assign(value, ::strnlen(value, n));
    });
    if (name.empty()) return;
    NicState state;
    if (header.nlmsg_type == RTM_NEWLINK) state = {true, (info.ifi_flags & IFF_UP) != 0, (info.ifi_flags & lower_up) != 0};
    out[name] = state;
  });
  return out;
}

NicProbe::NicProbe(Loop& loop, Handler changed)
    : changed_(std::move(changed)), socket_(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE)) {
  sockaddr_nl address = {};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK;
  if (!socket_ || ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw system_error("agent: rtnetlink", errno);
  request_list();
  while (first_) {
    pollfd p = {socket_.get(), POLLIN, 0};
    const int n = ::poll(&p, 1, 2000);
    if (n == 0 || (n < 0 && errno != EINTR)) throw Error(exit_status::internal, "agent: rtnetlink: no list of interfaces within 2 s");
    receive();
  }
  watch_ = FdWatch(loop, socket_.get(), [this] { receive(); });
}

NicState NicProbe::state(const std::string& nic) const {
  const auto at = nics_.find(nic);
  return at == nics_.end() ? NicState() : at->second;
}

void NicProbe::request_list() {
  struct {
    nlmsghdr header;
    ifinfomsg info;
  } request = {};
  request.header.nlmsg_len = NLMSG_LENGTH(sizeof(ifinfomsg));
  request.header.nlmsg_type = RTM_GETLINK;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.info.ifi_family = AF_UNSPEC;
  if (::send(socket_.get(), &request, request.header.nlmsg_len, 0) < 0) throw system_error("agent: rtnetlink: ask for interfaces", errno);
  listing_active_ = true;
  listing_.clear();
}

void NicProbe::receive() {
  alignas(nlmsghdr) char buffer[32768];
  for (;;) {
    sockaddr_nl from = {};
    socklen_t size = sizeof from;
    const ssize_t n = ::recvfrom(socket_.get(), buffer, sizeof buffer, 0, reinterpret_cast<sockaddr*>(&from), &size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == ENOBUFS) {
      request_list();
      continue;
    }
    if (n <= 0) return;
    if (from.nl_pid != 0) continue;  // only the kernel counts
    bool done = false;
    const auto news = parse_link_messages(buffer, static_cast<size_t>(n), &done);
    if (listing_active_)
      for (const auto& [name, state] : news) listing_[name] = state;
    if (!done) {
      if (!first_) apply(news);
      continue;
    }
    listing_active_ = false;
    if (first_) nics_ = listing_;
    first_ = false;
    auto whole = listing_;
    for (const auto& [name, state] : nics_) whole.try_emplace(name);  // not in the list: removed
    apply(whole);
  }
}

void NicProbe::apply(const std::map<std::string, NicState>& news) {
  for (const auto& [name, now] : news) {
    const NicState before = state(name);
    if (before == now) continue;
    nics_[name] = now;
    changed_(name, before, now);
  }
}

std::string interface_of_address(const std::string& address) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "";
  std::string found;
  for (const ifaddrs* i = list; i != nullptr && found.empty(); i = i->ifa_next) {
    if (i->ifa_addr == nullptr) continue;
    char text[INET6_ADDRSTRLEN] = "";
    if (i->ifa_addr->sa_family == AF_INET) {
      ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr, text, sizeof text);
    } else if (i->ifa_addr->sa_family == AF_INET6) {
      ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr, text, sizeof text);
    }
    if (address == text) found = i->ifa_name;
  }
  ::freeifaddrs(list);
  return found;
}

}  // namespace mm::agent
