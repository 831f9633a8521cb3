// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/wire.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "common/error.h"

namespace mm::checkpoint::wire {
namespace {

using namespace std::chrono_literals;

constexpr auto answer_deadline = 60s;      // the other side takes one connection after the other
constexpr auto one_address_deadline = 3s;  // an address may lead nowhere from here
constexpr uint64_t most_message_bytes = uint64_t{1} << 32;
constexpr size_t token_bytes = 16;

struct Hello {
  char token[token_bytes];
  int32_t number;
};

[[noreturn]] void fail(const std::string& what, int number) {
  throw system_error("checkpoint: " + what, number, exit_status::data);
}

bool wait_for(int fd, short events, Clock::time_point until) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd p{fd, events, 0};
    const int n = ::poll(&p, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
    if (n > 0) return true;
    if (n == 0) return false;
    if (errno != EINTR) fail("poll", errno);
  }
}

void send_bytes(int fd, const void* data, size_t bytes, Clock::time_point until, const std::string& whom) {
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::send(fd, p, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      p += n;
      bytes -= static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      if (!wait_for(fd, POLLOUT, until)) fail("send to " + whom, ETIMEDOUT);
    } else if (errno != EINTR) {
      fail("send to " + whom, errno);
    }
  }
}

void receive_bytes(int fd, void* data, size_t bytes, Clock::time_point until, const std::string& whom) {
  char* p = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::recv(fd, p, bytes, MSG_DONTWAIT);
    if (n > 0) {
      p += n;
      bytes -= static_cast<size_t>(n);
    } else if (n == 0) {
      throw Error(exit_status::data, "checkpoint: " + whom + " has gone");
    } else if (errno == EAGAIN) {
      if (!wait_for(fd, POLLIN, until)) throw Error(exit_status::data, "checkpoint: " + whom + " is late");
    } else if (errno != EINTR) {
      fail("receive from " + whom, errno);
    }
  }
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> far, near;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) fail("list network addresses", errno);
  for (const ifaddrs* a = all; a != nullptr; a = a->ifa_next) {
    if (a->ifa_addr == nullptr || a->ifa_addr->sa_family != AF_INET || (a->ifa_flags & IFF_UP) == 0) continue;
    char text[INET_ADDRSTRLEN] = "";
    sockaddr_in in{};
    std::memcpy(&in, a->ifa_addr, sizeof in);
    ::inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
    ((a->ifa_flags & IFF_LOOPBACK) != 0 ? near : far).emplace_back(text);
  }
  ::freeifaddrs(all);
  far.insert(far.end(), near.begin(), near.end());
  return far;
}

void set_options(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

UniqueFd try_address(const std::string& address, const Door& door, int number, const std::string& whom) {
  const std::string where = whom + " at " + address;
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(door.port);
  if (!fd || ::inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) fail("connect to " + where, errno);
  const auto until = Clock::now() + one_address_deadline;
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    if (errno != EINPROGRESS) fail("connect to " + where, errno);
    if (!wait_for(fd.get(), POLLOUT, until)) fail("connect to " + where, ETIMEDOUT);
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) fail("connect to " + where, error);
  }
  set_options(fd.get());
  Hello hello{};
  std::memcpy(hello.token, door.token.data(), token_bytes);
  hello.number = number;
  send_bytes(fd.get(), &hello, sizeof hello, until, where);
  char answer = 0;
  receive_bytes(fd.get(), &answer, 1, Clock::now() + answer_deadline, where);
  if (answer != door.token[0]) throw Error(exit_status::data, "checkpoint: " + where + ": somebody else answers");
  return fd;
}

}  // namespace

std::string text_of(const Door& door) {
  std::string out = door.token + std::to_string(door.port);
  for (const std::string& a : door.addresses) out += " " + a;
  return out;
}

Door parse_door(const std::string& text) {
  Door door;
  if (text.size() < token_bytes) throw Error(exit_status::data, "checkpoint: a rank has no address");
  door.token = text.substr(0, token_bytes);
  std::istringstream rest(text.substr(token_bytes));
  rest >> door.port;
  for (std::string a; rest >> a;) door.addresses.push_back(a);
  return door;
}

std::pair<UniqueFd, Door> open_door(int backlog) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  socklen_t length = sizeof any;
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0 || ::listen(fd.get(), backlog) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&any), &length) != 0) {
    fail("listen for the other ranks", errno);
  }
  Door door;
  door.port = ntohs(any.sin_port);
  door.token.resize(token_bytes);
  if (::getrandom(door.token.data(), token_bytes, 0) != token_bytes) fail("random token", errno);
  door.addresses = own_addresses();
  return {std::move(fd), std::move(door)};
}

std::optional<std::pair<int, UniqueFd>> accept_one(int listener, const Door& door) {
  UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) return std::nullopt;
  try {
    Hello hello{};
    const auto soon = Clock::now() + one_address_deadline;
    receive_bytes(fd.get(), &hello, sizeof hello, soon, "a rank");
    if (std::memcmp(hello.token, door.token.data(), token_bytes) != 0) return std::nullopt;
    set_options(fd.get());
    send_bytes(fd.get(), door.token.data(), 1, soon, "a rank");
    return std::pair(static_cast<int>(hello.number), std::move(fd));
  } catch (const Error&) {
    return std::nullopt;
  }
}

UniqueFd connect_to(const Door& door, int number, const std::string& whom) {
  std::string errors;
  for (const std::string& a : door.addresses) {
    try {
      return try_address(a, door, number, whom);
    } catch (const Error& e) {
      errors += std::string(errors.empty() ? "" : "; ") + e.what();
    }
  }
  throw Error(exit_status::data, errors.empty() ? "checkpoint: " + whom + " has no network address" : errors);
}

bool wait_readable(int fd, Clock::time_point until) {
  return wait_for(fd, POLLIN, until);
}

void send_message(int fd, const std::string& text, Clock::time_point until, const std::string& whom) {
  const uint64_t length = text.size();
  send_bytes(fd, &length, sizeof length, until, whom);
  send_bytes(fd, text.data(), text.size(), until, whom);
}

std::string receive_message(int fd, Clock::time_point until, const std::string& whom) {
  uint64_t length = 0;
  receive_bytes(fd, &length, sizeof length, until, whom);
  if (length > most_message_bytes) throw Error(exit_status::data, "checkpoint: " + whom + ": a message that is none");
  std::string text(length, '\0');
  receive_bytes(fd, text.data(), text.size(), until, whom);
  return text;
}

std::string pack(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& t : texts) {
    const uint64_t length = t.size();
    out.append(reinterpret_cast<const char*>(&length), sizeof length);
    out += t;
  }
  return out;
}

std::vector<std::string> unpack(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at + sizeof(uint64_t) <= text.size();) {
    uint64_t length = 0;
    std::memcpy(&length, &text[at], sizeof length);
    at += sizeof length;
    out.push_back(text.substr(at, length));
    at += length;
  }
  return out;
}

std::string host_name() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return host;
}

}  // namespace mm::checkpoint::wire
