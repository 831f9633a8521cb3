// SPDX-License-Identifier: Apache-2.0
#include "agent/local/server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "common/agent_client.h"
#include "common/error.h"
#include "common/log.h"

namespace mm::agent {
namespace {

constexpr int backlog = 1024;
constexpr int most_per_user = 1024;
constexpr size_t most_unsent = 4 << 20;
constexpr int packets_per_turn = 64;  // then other clients have their turn

}  // namespace

bool Peer::is_root() const { return uid == 0 || uid == ::geteuid(); }

LocalServer::LocalServer(Loop& loop, const std::string& path, Handlers handlers)
    : loop_(loop), path_(path), handlers_(std::move(handlers)), buffer_(agent_message_limit + 1, '\0') {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path) throw usage_error("agent: socket " + path_ + ": path is too long");
  std::memcpy(address.sun_path, path_.c_str(), path_.size());

  const std::string folder = std::filesystem::path(path_).parent_path().string();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error(exit_status::internal, fmt::format("agent: create {}: {}", folder, error.message()));

  lock_ = UniqueFd(::open((path_ + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock_) throw system_error("agent: open " + path_ + ".lock", errno);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) throw usage_error("agent: " + path_ + " belongs to another mm-agentd that is running");
    throw system_error("agent: lock " + path_ + ".lock", errno);
  }
  ::unlink(path_.c_str());
  listener_ = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_ || ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw system_error("agent: bind " + path_, errno);
  if (::chmod(path_.c_str(), 0666) != 0) throw system_error("agent: chmod " + path_, errno);
  if (::listen(listener_.get(), backlog) != 0) throw system_error("agent: listen " + path_, errno);
  watch_ = FdWatch(loop_, listener_.get(), [this] { accept(); });
}

LocalServer::~LocalServer() { ::unlink(path_.c_str()); }

void LocalServer::accept() {
  for (int i = 0; i < packets_per_turn; ++i) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      if (errno == EMFILE || errno == ENFILE) {
        // Waits for a descriptor rather than spinning on a connection that cannot be taken.
        log::error("agent: accept on {}: {}", path_, std::strerror(errno));
        watch_ = FdWatch();
        loop_.after(milliseconds(200), [this] { watch_ = FdWatch(loop_, listener_.get(), [this] { accept(); }); });
      }
      return;
    }
    ucred credentials = {};
    socklen_t size = sizeof credentials;
    if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) continue;
    const Peer peer = {credentials.pid, credentials.uid};
    if (!peer.is_root() && per_user_[peer.uid] >= most_per_user) {
      log::warn("agent: user {} has {} connections; one more is refused", peer.uid, most_per_user);
      continue;
    }
    ++per_user_[peer.uid];
    const ClientId id = next_++;
    Client& client = clients_[id];
    client.fd = std::move(fd);
    client.peer = peer;
    client.readable = FdWatch(loop_, client.fd.get(), [this, id] { receive(id); });
  }
}

void LocalServer::receive(ClientId id) {
  for (int i = 0; i < packets_per_turn; ++i) {
    const auto at = clients_.find(id);
    if (at == clients_.end()) return;
    const ssize_t n = ::recv(at->second.fd.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    // A client that is gone without reading its answers makes one error; what it said before is behind that.
    if (n < 0 && (errno == EINTR || errno == ECONNRESET)) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return close(id);
    if (static_cast<size_t>(n) > agent_message_limit) {
      send(id, fmt::format("OK=0\nERROR=message is longer than {} bytes\n", agent_message_limit));
      continue;
    }
    const Peer peer = at->second.peer;
    handlers_.message(id, peer, std::string_view(buffer_).substr(0, static_cast<size_t>(n)));
  }
}

void LocalServer::send(ClientId id, const std::string& packet) {
  const auto at = clients_.find(id);
  if (at == clients_.end()) return;
  Client& client = at->second;
  client.unsent.push_back(packet);
  client.unsent_bytes += packet.size();
  if (!flush(client) || client.unsent_bytes > most_unsent) return close(id);
  if (client.unsent.empty() || client.writable) return;
  client.writable_fd = UniqueFd(::fcntl(client.fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!client.writable_fd) return close(id);
  client.writable = FdWatch(
      loop_, client.writable_fd.get(),
      [this, id] {
        const auto it = clients_.find(id);
        if (it == clients_.end()) return;
        if (!flush(it->second)) return close(id);
        if (it->second.unsent.empty()) it->second.writable = FdWatch();
      },
      FdWatch::For::write);
}

bool LocalServer::flush(Client& client) {
  while (!client.unsent.empty()) {
    const std::string& packet = client.unsent.front();
    if (::send(client.fd.get(), packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN;
    }
    client.unsent_bytes -= packet.size();
    client.unsent.pop_front();
  }
  return true;
}

void LocalServer::close(ClientId id) {
  const auto at = clients_.find(id);
  if (at == clients_.end()) return;
  if (--per_user_[at->second.peer.uid] <= 0) per_user_.erase(at->second.peer.uid);
  clients_.erase(at);
  // Not from within a send: the caller may be going through its own list of clients.
  loop_.post([this, id] { handlers_.closed(id); });
}

}  // namespace mm::agent
