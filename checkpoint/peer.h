// SPDX-License-Identifier: Apache-2.0
// Rank files between nodes. Each rank with a store of its own has a server: other ranks give it a copy of their file to keep,
// which it checks against the hashes of the source before it says yes, and read at a load the copies that only this node has.
// A message is a list of texts (wire::pack):
//
//   give RUN-STEP NAME RANK RANKS RECORD BYTES   then the file in messages of at most 4 MiB       answer: + or -reason
//   read COPY OFFSET BYTES                                                                       answer: + and the bytes, or
//   -reason
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/source.h"
#include "checkpoint/wire.h"

namespace mm::checkpoint {

class NodeStore;

class PeerServer {
 public:
  // Copies that are given go to `store`; none: they are refused.
  explicit PeerServer(const NodeStore* store);
  ~PeerServer();
  PeerServer(const PeerServer&) = delete;
  PeerServer& operator=(const PeerServer&) = delete;
  const wire::Door& door() const { return door_; }
  // What others may read, by its place in the list.
  void offer(std::vector<Place> copies);

 private:
  struct Connection {
    UniqueFd fd;  // none when it has ended
    std::jthread server;
  };
  void accept_all(const std::stop_token& stop);
  void serve(Connection& connection);
  std::string answer(int fd, const std::vector<std::string>& request);
  std::string keep(int fd, const std::vector<std::string>& request);
  std::string read(const std::vector<std::string>& request);

  const NodeStore* store_;
  UniqueFd listener_;
  wire::Door door_;
  std::mutex mutex_;
  std::vector<Place> offered_;
  std::map<size_t, std::shared_ptr<Source>> open_;
  std::list<Connection> connections_;
  std::jthread acceptor_;  // last, so that it ends first
};

// Gives a copy of a file on this node to another rank; throws Error.
void give_copy(const wire::Door& door, const std::string& whom, const std::string& path, int64_t step, const std::string& name,
               int rank, int ranks, const FileRecord& record);
// Copy `number` of what the other rank offers.
Place remote_place(const wire::Door& door, const std::string& whom, size_t number, uint64_t size);

}  // namespace mm::checkpoint
