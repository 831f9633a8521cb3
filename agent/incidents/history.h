// SPDX-License-Identifier: Apache-2.0
// The incidents of this node for months, in an SQLite database (STATE_DIR/history-NODE.db): what `mm-agent history` shows, and what tells a lemon, a
// node that fails again and again, from one with bad luck. It outlives reboots.
//
// All work is done in a worker. A database that cannot be written is said once and costs nothing else; one that is damaged is put aside and
// begun anew.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "agent/incidents/incident.h"
#include "agent/loop.h"

namespace mm::agent {

class History {
 public:
  History(Loop& loop, const std::string& state_dir, const std::string& node);
  ~History();

  void add(const Incident& incident);
  // The newest first, as a JSON array. `device` may be empty.
  void ask(double since, const std::string& device, int most, std::function<void(const std::string& json)> done);
  // How many faults of hardware there were since, of which parts; for predictions.
  void count_hardware(double since, std::function<void(int count, const std::string& parts)> done);

 private:
  struct Database;
  Loop& loop_;
  std::shared_ptr<Database> database_;
};

}  // namespace mm::agent
