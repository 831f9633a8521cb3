// SPDX-License-Identifier: Apache-2.0
// The agent's local socket: AF_UNIX SOCK_SEQPACKET, open to every user of the node; who a client is comes from the kernel (SO_PEERCRED),
// never from what it says. What it may do is decided by the caller.
//
// Invariants: one agent per node (a lock beside the socket). No client can block the loop or grow its memory without bound: packets have a
// size limit, a client that does not read its answers is closed, and a user has a limited number of connections.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include "agent/loop.h"
#include "common/files.h"

namespace mm::agent {

struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
  // Root, or who runs the agent.
  bool is_root() const;
  bool may_act_for(uid_t owner) const { return is_root() || uid == owner; }
};

using ClientId = uint64_t;

class LocalServer {
 public:
  struct Handlers {
    std::function<void(ClientId, const Peer&, std::string_view)> message;
    std::function<void(ClientId)> closed;
  };
  // Throws an Error that names the socket; also where another agent has it.
  LocalServer(Loop& loop, const std::string& path, Handlers handlers);
  ~LocalServer();

  // What cannot be sent at once is kept until it can. A client that is gone or too far behind is closed.
  void send(ClientId client, const std::string& packet);
  size_t clients() const { return clients_.size(); }

 private:
  struct Client {
    UniqueFd fd, writable_fd;  // the second is a duplicate, as a descriptor is watched once
    Peer peer;
    std::deque<std::string> unsent;
    size_t unsent_bytes = 0;
    FdWatch readable, writable;
  };
  void accept();
  void receive(ClientId id);
  bool flush(Client& client);  // false where the client is gone
  void close(ClientId id);

  Loop& loop_;
  std::string path_;
  Handlers handlers_;
  UniqueFd lock_, listener_;
  FdWatch watch_;
  std::map<ClientId, Client> clients_;
  std::map<uid_t, int> per_user_;
  ClientId next_ = 1;
  std::string buffer_;
};

}  // namespace mm::agent
