// SPDX-License-Identifier: Apache-2.0
// What one rank has in flight, over all its groups. Every wait and every test drives all of it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/comm/transport.h"

namespace mm::comm {

// What was sent and waited for; a group's counts are also its parent's.
struct Counts {
  uint64_t bytes_sent = 0;
  double wait_seconds = 0;
  std::shared_ptr<Counts> parent;
};

// Ranks in it are numbered from 0; members says which ranks of the world they are.
struct Group {
  std::string name;
  int context = 0;
  int rank = 0;
  std::vector<int> members;
  std::shared_ptr<Counts> counts = std::make_shared<Counts>();
  uint64_t collectives = 0;  // begun

  int size() const { return static_cast<int>(members.size()); }
};

class Operation;

class Engine {
 public:
  explicit Engine(std::unique_ptr<Transport> transport);
  ~Engine();

  Transport& transport() { return *transport_; }
  // One to begin: unused, with memory of earlier use.
  std::shared_ptr<Operation> operation();
  void progress();
  // Throws where the operation fails or does not end within the deadline of the phase.
  void wait(Operation& operation);

  std::vector<std::string> nodes;  // of the world's ranks
  std::string phase = "start";
  std::chrono::milliseconds deadline = default_deadline;
  int next_context = 1;  // contexts below it are in use by groups of this rank
  bool tracing = false;
  std::vector<Traced> trace;

 private:
  std::unique_ptr<Transport> transport_;
  std::vector<std::shared_ptr<Operation>> operations_;
};

}  // namespace mm::comm
