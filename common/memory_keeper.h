// SPDX-License-Identifier: Apache-2.0
// What the agent of a node keeps for a job and outlives its processes: sealed memfds, a folder on the node's own disk, a secret.
//
// The socket is AF_UNIX SOCK_SEQPACKET, RUN_DIR/memory-NODE.sock; the agent knows its peer by SO_PEERCRED. A message is a
// packet of KEY=VALUE lines (common/key_values.h), a descriptor travels beside it (SCM_RIGHTS):
//
//   VERB   keys            answer
//   put    JOB KEY + fd    OK=1. The memfd must be sealed against writing, growing and shrinking, so that nobody can change or
//                          cut it while it is kept. It replaces one of the same key.
//   get    JOB KEY         OK=1 + fd
//   list   JOB             OK=1 KEYS= (keys, a blank between two)
//   drop   JOB PREFIX      OK=1: keys that begin so are forgotten
//   folder JOB             OK=1 FOLDER=path: the user's own, closed to others, the same for all ranks of the job on this node
//   secret JOB             OK=1 SECRET= 32 random bytes in hexadecimal, the same for all ranks of the job on this node
//
// A job's are given only to the uid that owns the job. The agent never maps the memory; it stays charged to the job's cgroup. All
// of it is dropped, and the folder removed, when the job ends. An error is OK=0 ERROR=text.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "common/files.h"
#include "common/key_values.h"

namespace mm {

std::string memory_socket_path(const std::string& run_dir, const std::string& node);
// The one of the agent whose own socket (common/agent_client.h) is `agent_socket`.
std::string memory_socket_beside(const std::string& agent_socket);

class MemoryKeeperClient {
 public:
  // Throws an Error that names the socket, as all of them do. An agent that was restarted meanwhile is connected to again; what
  // the one before kept in memory is gone then.
  MemoryKeeperClient(const std::string& socket_path, std::string job);
  void put(const std::string& key, int memfd);
  UniqueFd get(const std::string& key);
  std::vector<std::string> list();
  void drop(const std::string& prefix);
  std::string folder();
  void secret(std::span<unsigned char, 32> to);

 private:
  void connect();
  std::string exchange(const std::string& request, int send_fd, UniqueFd& received);
  KeyValues ask(KeyValues message, int send_fd, UniqueFd* received);
  std::string socket_, path_, job_;
  UniqueFd fd_;
};

// One packet with perhaps one descriptor. receive: false where the other side has closed; at the deadline of the socket
// (SO_RCVTIMEO) or for other reasons an Error with `what`.
void send_packet(int socket, const std::string& text, int fd, const std::string& what);
bool receive_packet(int socket, std::string& text, UniqueFd& fd, const std::string& what);

}  // namespace mm
