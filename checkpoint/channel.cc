// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/channel.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <sstream>

#include "common/error.h"

namespace mm::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto connect_deadline = 60s;        // for all ranks to join
constexpr auto one_address_deadline = 3s;     // an address of rank 0 may lead nowhere from here
constexpr uint64_t most_message_bytes = uint64_t{1} << 32;
constexpr size_t token_bytes = 16;

struct Hello {
  char token[token_bytes];
  int32_t rank;
};

[[noreturn]] void fail(const std::string& what, int number) {
  throw system_error("checkpoint: " + what, number, exit_status::data);
}

// False at the deadline.
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

// Several texts in one message.
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

// Addresses of this machine, those that other machines can reach first.
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

UniqueFd listen_anywhere(int backlog, uint16_t& port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  socklen_t length = sizeof any;
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0 || ::listen(fd.get(), backlog) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&any), &length) != 0) {
    fail("listen for the other ranks", errno);
  }
  port = ntohs(any.sin_port);
  return fd;
}

// A descriptor for each rank, beyond what the process may have by default.
void allow_descriptors(int more) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min<rlim_t>(limit.rlim_max, static_cast<rlim_t>(more) + 1024);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void set_options(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

// Takes one connection and reads its hello; nullopt where it is not of ours.
std::optional<std::pair<int, UniqueFd>> accept_one(int listener, const std::string& token, int ranks, Clock::time_point until) {
  UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) return std::nullopt;
  try {
    Hello hello{};
    const auto soon = std::min(until, Clock::now() + one_address_deadline);
    receive_bytes(fd.get(), &hello, sizeof hello, soon, "a rank");
    if (std::memcmp(hello.token, token.data(), token_bytes) != 0 || hello.rank < 1 || hello.rank >= ranks) return std::nullopt;
    set_options(fd.get());
    send_bytes(fd.get(), token.data(), 1, soon, "a rank");
    return std::pair(static_cast<int>(hello.rank), std::move(fd));
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::vector<UniqueFd> accept_ranks(int listener, const std::string& token, const std::vector<std::string>& hosts) {
  const auto until = Clock::now() + connect_deadline;
  std::vector<UniqueFd> peers(hosts.size());
  for (size_t joined = 1; joined < hosts.size();) {
    if (!wait_for(listener, POLLIN, until)) break;
    if (auto one = accept_one(listener, token, static_cast<int>(hosts.size()), until)) {
      UniqueFd& place = peers[static_cast<size_t>(one->first)];
      if (!place) ++joined;
      place = std::move(one->second);
    }
  }
  for (size_t r = 1; r < peers.size(); ++r) {
    if (!peers[r])
      throw Error(exit_status::data, fmt::format("checkpoint: rank {} of {} on {} has not connected to rank 0 on {} within {} s",
                                                 r, hosts.size(), hosts[r], hosts[0], connect_deadline / 1s));
  }
  return peers;
}

UniqueFd try_address(const std::string& address, uint16_t port, const std::string& token, int rank) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  if (!fd || ::inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) fail("connect to " + address, errno);
  const auto until = Clock::now() + one_address_deadline;
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    if (errno != EINPROGRESS) fail("connect to " + address, errno);
    if (!wait_for(fd.get(), POLLOUT, until)) fail("connect to " + address, ETIMEDOUT);
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) fail("connect to " + address, error);
  }
  set_options(fd.get());
  Hello hello{};
  std::memcpy(hello.token, token.data(), token_bytes);
  hello.rank = rank;
  send_bytes(fd.get(), &hello, sizeof hello, until, address);
  char answer = 0;
  // Rank 0 takes one after the other.
  receive_bytes(fd.get(), &answer, 1, Clock::now() + connect_deadline, "rank 0 at " + address);
  if (answer != token[0]) throw Error(exit_status::data, "checkpoint: " + address + " is not rank 0");
  return fd;
}

UniqueFd connect_to_first(const std::vector<std::string>& addresses, uint16_t port, const std::string& token, int rank) {
  std::string errors;
  for (const std::string& a : addresses) {
    try {
      return try_address(a, port, token, rank);
    } catch (const Error& e) {
      errors += std::string(errors.empty() ? "" : "; ") + e.what();
    }
  }
  throw Error(exit_status::data, errors.empty() ? "checkpoint: rank 0 has no network address" : errors);
}

}  // namespace

Channel::Channel(Group& group, std::chrono::milliseconds deadline) : rank_(group.rank()), deadline_(deadline) {
  hosts_ = group.all_gather(host_name());
  if (size() == 1) return;
  for (const std::string& error : group.all_gather(connect_all(group))) {
    if (!error.empty()) throw Error(exit_status::data, error);
  }
}

// Returns what went wrong.
std::string Channel::connect_all(Group& group) {
  // One message: port, token, addresses.
  std::string error, mine;
  UniqueFd listener;
  if (rank_ == 0) {
    try {
      allow_descriptors(size());
      uint16_t port = 0;
      listener = listen_anywhere(size(), port);
      char token[token_bytes];
      if (::getrandom(token, sizeof token, 0) != sizeof token) fail("random token", errno);
      mine = std::string(token, sizeof token) + std::to_string(port);
      for (const std::string& a : own_addresses()) mine += " " + a;
    } catch (const Error& e) {
      error = e.what();
      mine.clear();
    }
  }
  const std::string told = group.broadcast(mine);
  if (told.empty()) return error;
  const std::string token = told.substr(0, token_bytes);
  std::istringstream rest(told.substr(token_bytes));
  uint16_t port = 0;
  rest >> port;
  std::vector<std::string> addresses;
  for (std::string a; rest >> a;) addresses.push_back(a);
  try {
    if (rank_ == 0)
      peers_ = accept_ranks(listener.get(), token, hosts_);
    else
      peers_.push_back(connect_to_first(addresses, port, token, rank_));
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

std::vector<std::string> Channel::gather(const std::string& mine) {
  const auto until = Clock::now() + deadline_;
  if (rank_ != 0) {
    send_message(peers_[0].get(), mine, until, "rank 0 on " + hosts_[0]);
    return {};
  }
  std::vector<std::string> all{mine};
  for (size_t r = 1; r < peers_.size(); ++r) {
    all.push_back(
        receive_message(peers_[r].get(), until, fmt::format("rank {} of {} on {}", r, hosts_.size(), hosts_[r])));
  }
  return all;
}

std::string Channel::broadcast(const std::string& mine) {
  // Rank 0 itself may have waited for the slowest of all until its deadline.
  const auto until = Clock::now() + 2 * deadline_;
  if (rank_ != 0) return receive_message(peers_[0].get(), until, "rank 0 on " + hosts_[0]);
  for (size_t r = 1; r < peers_.size(); ++r) {
    send_message(peers_[r].get(), mine, until, fmt::format("rank {} of {} on {}", r, hosts_.size(), hosts_[r]));
  }
  return mine;
}

std::vector<std::string> Channel::all_gather(const std::string& mine) {
  const std::vector<std::string> all = gather(mine);
  return unpack(broadcast(pack(all)));
}

}  // namespace mm::checkpoint
