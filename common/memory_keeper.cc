// SPDX-License-Identifier: Apache-2.0
#include "common/memory_keeper.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <sstream>
#include <string_view>

#include "common/error.h"

namespace mm {
namespace {

constexpr size_t packet_limit = 64 * 1024;
constexpr time_t answer_seconds = 10;

}  // namespace

std::string memory_socket_path(const std::string& run_dir, const std::string& node) {
  return fmt::format("{}/memory-{}.sock", run_dir, node);
}

std::string memory_socket_beside(const std::string& agent_socket) {
  constexpr std::string_view agents = "agent-";
  const size_t name = agent_socket.rfind('/') + 1;
  if (agent_socket.compare(name, agents.size(), agents) != 0) throw usage_error(agent_socket + ": is not the socket of an agent");
  return agent_socket.substr(0, name) + "memory-" + agent_socket.substr(name + agents.size());
}

void send_packet(int socket, const std::string& text, int fd, const std::string& what) {
  iovec data{const_cast<char*>(text.data()), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  while (::sendmsg(socket, &message, MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) throw system_error(what + ": send", errno, exit_status::data);
  }
}

bool receive_packet(int socket, std::string& text, UniqueFd& fd, const std::string& what) {
  text.assign(packet_limit, '\0');
  iovec data{text.data(), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n = 0;
  do n = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  if (n < 0) throw system_error(what + ": receive", errno, exit_status::data);
  // Every descriptor that came is owned, and only the first is kept.
  fd.reset();
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= h->cmsg_len; ++i) {
      int one = -1;
      std::memcpy(&one, CMSG_DATA(h) + i * sizeof(int), sizeof one);
      UniqueFd owned(one);
      if (!fd) fd = std::move(owned);
    }
  }
  text.resize(static_cast<size_t>(n));
  return n > 0;
}

MemoryKeeperClient::MemoryKeeperClient(const std::string& socket_path, std::string job)
    : socket_(socket_path), path_("memory keeper " + socket_path), job_(std::move(job)) {
  connect();
}

void MemoryKeeperClient::connect() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_.size() >= sizeof address.sun_path) throw usage_error(path_ + ": the path is too long");
  std::memcpy(address.sun_path, socket_.c_str(), socket_.size());
  fd_ = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const timeval patience{answer_seconds, 0};
  if (!fd_ || ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0 ||
      ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) != 0 ||
      ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const int why = errno;
    fd_.reset();
    throw system_error(path_ + ": connect", why, exit_status::data);
  }
}

std::string MemoryKeeperClient::exchange(const std::string& request, int send_fd, UniqueFd& received) {
  if (!fd_) connect();
  try {
    send_packet(fd_.get(), request, send_fd, path_);
    std::string text;
    if (!receive_packet(fd_.get(), text, received, path_)) throw Error(exit_status::data, path_ + ": it has gone");
    return text;
  } catch (const Error&) {
    fd_.reset();
    throw;
  }
}

KeyValues MemoryKeeperClient::ask(KeyValues message, int send_fd, UniqueFd* received) {
  message["JOB"] = job_;
  const std::string request = format_key_values(message);
  std::string text;
  UniqueFd fd;
  try {
    text = exchange(request, send_fd, fd);
  } catch (const Error&) {
    text = exchange(request, send_fd, fd);  // each verb may be done twice
  }
  KeyValues answer = parse_key_values(text);
  if (mm::get(answer, "OK") != "1") throw Error(exit_status::data, path_ + ": " + mm::get(answer, "ERROR", "no answer"));
  if (received != nullptr) *received = std::move(fd);
  return answer;
}

void MemoryKeeperClient::put(const std::string& key, int memfd) {
  ask({{"VERB", "put"}, {"KEY", key}}, memfd, nullptr);
}

UniqueFd MemoryKeeperClient::get(const std::string& key) {
  UniqueFd fd;
  ask({{"VERB", "get"}, {"KEY", key}}, -1, &fd);
  if (!fd) throw Error(exit_status::data, path_ + ": " + key + ": no descriptor came");
  return fd;
}

std::vector<std::string> MemoryKeeperClient::list() {
  std::istringstream in(mm::get(ask({{"VERB", "list"}}, -1, nullptr), "KEYS"));
  std::vector<std::string> out;
  for (std::string key; in >> key;) out.push_back(key);
  return out;
}

void MemoryKeeperClient::drop(const std::string& prefix) {
  ask({{"VERB", "drop"}, {"PREFIX", prefix}}, -1, nullptr);
}

std::string MemoryKeeperClient::folder() {
  const std::string path = mm::get(ask({{"VERB", "folder"}}, -1, nullptr), "FOLDER");
  if (path.empty()) throw Error(exit_status::data, path_ + ": no folder came");
  return path;
}

void MemoryKeeperClient::secret(std::span<unsigned char, 32> to) {
  KeyValues answer = ask({{"VERB", "secret"}}, -1, nullptr);
  std::string& text = answer["SECRET"];
  bool good = text.size() == 2 * to.size();
  for (size_t i = 0; good && i < to.size(); ++i)
    good = std::from_chars(text.data() + 2 * i, text.data() + 2 * i + 2, to[i], 16).ptr == text.data() + 2 * i + 2;
  ::explicit_bzero(text.data(), text.size());
  if (!good) throw Error(exit_status::data, path_ + ": no secret came");
}

}  // namespace mm
