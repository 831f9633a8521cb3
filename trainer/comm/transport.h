// SPDX-License-Identifier: Apache-2.0
// What collectives need of the wire: messages between pairs of ranks, with a deadline. One implementation for MPI, one for
// threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/comm/comm.h"

namespace mm::comm {

struct Outgoing {
  int peer = 0;
  const void* data = nullptr;
  size_t bytes = 0;
};
struct Incoming {
  int peer = 0;
  void* data = nullptr;
  size_t bytes = 0;  // exactly so many
};

// How an exchange went: neither late peers nor an error is success.
struct Outcome {
  std::vector<int> late;  // at the deadline, without their message or without having taken ours
  std::string error;      // what broke, with the peer that it concerns
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Sends and receives all messages; returns when they are done, at the deadline, or when something breaks. At most one message
  // for each peer and direction. `tag` grows by one with every exchange and is the same on all ranks. Buffers are used during
  // the call; after a failure they must outlive every other use of the transport.
  virtual Outcome exchange(std::span<const Outgoing> out, std::span<const Incoming> in, uint64_t tag,
                           std::chrono::steady_clock::time_point deadline) = 0;
};

std::unique_ptr<Comm> comm_over(std::unique_ptr<Transport> transport);

}  // namespace mm::comm
