// SPDX-License-Identifier: Apache-2.0
// What collectives need of the wire: messages between pairs of ranks that are begun at once and looked after later. One
// implementation for MPI, one for threads. Ranks are those of the world.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/comm/node_memory.h"

namespace mm::comm {

// What the two ends of a message agree on. Messages with equal tags between two ranks arrive in order.
struct Tag {
  int context = 0;          // of the group
  bool collective = false;  // numbers of collectives may wrap, those of single messages may not
  uint64_t number = 0;
  bool operator==(const Tag&) const = default;
};

// Messages that are waited for together. After clear() a batch is as new, and has kept its memory.
class Batch {
 public:
  virtual ~Batch() = default;
  virtual void clear() = 0;
  // Buffers are in use until sent(), or received().
  virtual void send(int peer, const Tag& tag, const void* data, size_t bytes) = 0;
  virtual void receive(int peer, const Tag& tag, void* data, size_t bytes) = 0;  // exactly so many
  // A message that is only read: view() says where it lies until give_back(). Where it cannot be read in place it comes to
  // `data`.
  virtual void borrow(int peer, const Tag& tag, void* data, size_t bytes) = 0;
  virtual const void* view(size_t kth_borrowed) const = 0;
  virtual void give_back() = 0;
  // Looks what has come; true when something has. Throws an Error without place where the wire or a peer is broken.
  virtual bool poll() = 0;
  virtual bool received() const = 0;
  virtual bool sent() const = 0;
  // Peers whose message has not come, or who have not taken ours.
  virtual std::vector<int> late() const = 0;
  // Nobody touches the buffers of what was sent or received any more, as far as the wire allows.
  virtual void withdraw() = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::unique_ptr<Batch> batch() = 0;
  // Numbers of single messages are below it.
  virtual uint64_t tags() const = 0;
  // What is shared with other processes; null where there are none.
  virtual NodeMemory* node_memory() { return nullptr; }
  // Whether all borrowed messages are read in place.
  virtual bool in_place() const = 0;
  // look(), then polls, then idle(): sleeps, at most until the deadline, if nothing has come since look().
  virtual void look() = 0;
  virtual void idle(std::chrono::steady_clock::time_point deadline) = 0;
};

// The world: asks all ranks for the names of their nodes.
std::unique_ptr<Comm> comm_over(std::unique_ptr<Transport> transport);
// The world where all are known to be on this node.
std::unique_ptr<Comm> comm_on_this_node(std::unique_ptr<Transport> transport);

}  // namespace mm::comm
