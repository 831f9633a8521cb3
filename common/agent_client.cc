// SPDX-License-Identifier: Apache-2.0
#include "common/agent_client.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "common/error.h"

namespace mm {
namespace {

void wait_for(int fd, short what, std::chrono::milliseconds deadline, const std::string& path) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    pollfd p = {fd, what, 0};
    const int n = ::poll(&p, 1, left < 0 ? 0 : static_cast<int>(left));
    if (n > 0) return;
    if (n < 0 && errno != EINTR) throw system_error("agent " + path + ": poll", errno);
    if (n == 0) throw Error(exit_status::internal, fmt::format("agent {}: no answer within {} ms", path, deadline.count()));
  }
}

}  // namespace

std::string agent_socket_path(const std::string& run_dir, const std::string& node) { return fmt::format("{}/agent-{}.sock", run_dir, node); }

AgentClient::AgentClient(const std::string& socket_path) : path_(socket_path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path) throw usage_error("agent " + path_ + ": socket path is too long");
  std::memcpy(address.sun_path, path_.c_str(), path_.size());
  fd_ = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd_) throw system_error("agent " + path_ + ": socket", errno);
  if (::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    // EAGAIN: the agent is alive and its backlog is full; a blocking connect waits its turn.
    if (errno != EAGAIN) throw system_error("agent " + path_ + ": connect", errno);
    const timeval patience = {2, 0};
    UniqueFd blocking(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!blocking) throw system_error("agent " + path_ + ": socket", errno);
    ::setsockopt(blocking.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (::connect(blocking.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      throw system_error("agent " + path_ + ": connect", errno);
    fd_ = std::move(blocking);
  }
}

void AgentClient::send(const KeyValues& message, std::chrono::milliseconds deadline) {
  const std::string text = format_key_values(message);
  while (::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) throw system_error("agent " + path_ + ": send", errno);
    wait_for(fd_.get(), POLLOUT, deadline, path_);
  }
}

bool AgentClient::try_send(const KeyValues& message) noexcept {
  try {
    const std::string text = format_key_values(message);
    return ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
  } catch (...) {
    return false;
  }
}

std::optional<KeyValues> AgentClient::try_receive() {
  std::string buffer(agent_message_limit, '\0');
  const ssize_t n = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (n <= 0) return std::nullopt;
  return parse_key_values(std::string_view(buffer).substr(0, static_cast<size_t>(n)));
}

KeyValues AgentClient::receive(std::chrono::milliseconds deadline) {
  std::string buffer(agent_message_limit, '\0');
  for (;;) {
    const ssize_t n = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n > 0) return parse_key_values(std::string_view(buffer).substr(0, static_cast<size_t>(n)));
    if (n == 0) throw Error(exit_status::internal, "agent " + path_ + ": closed the connection");
    if (errno == EINTR) continue;
    if (errno != EAGAIN) throw system_error("agent " + path_ + ": receive", errno);
    wait_for(fd_.get(), POLLIN, deadline, path_);
  }
}

KeyValues AgentClient::request(const KeyValues& message, std::chrono::milliseconds deadline) {
  send(message, deadline);
  return receive(deadline);
}

}  // namespace mm
