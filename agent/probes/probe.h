// SPDX-License-Identifier: Apache-2.0
// A probe looks at one thing of this node and says what is wrong with it. Probes run at the same time, each in a thread of its own that lives for
// one run, and never in the loop. One that is not back at its deadline is itself reported, and is not started again until it is back: so a
// driver or a mount that hangs costs one thread and holds up nothing else.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "agent/incidents/report.h"
#include "agent/loop.h"
#include "common/files.h"

namespace mm::agent {

struct ProbeResult {
  // By a key that names the fault within the probe. What was there in the last run and is not any more is over.
  std::map<std::string, Report> reports;
  // "mm_gpu_power_watts{gpu="0000:1b:00.0"}" -> value
  std::map<std::string, double> metrics;
  // Errors that were corrected, since the last run, by device and kind: for predictions.
  std::map<std::pair<std::string, std::string>, double> corrected;
};

struct Probe {
  std::string name;
  milliseconds period, deadline;
  // Must not refer to anything that the probe does not own: a run may outlast the agent.
  std::function<ProbeResult()> run;
  // What the run is doing, for the report of a hang; may be called while it runs.
  std::function<std::string()> doing = {};
};

class ProbeRunner {
 public:
  struct Handlers {
    std::function<void(const std::string& probe, const ProbeResult&)> result;
    std::function<void(const std::string& probe, const std::string& words)> hangs;
    std::function<void(const std::string& probe)> back;  // one that hung
  };
  ProbeRunner(Loop& loop, Handlers handlers);
  ~ProbeRunner();

  void add(Probe probe);
  // Runs all now; `done` is called when all are back or late.
  void run_all(std::function<void()> done);

 private:
  struct Entry;
  struct Mailbox;
  void start(Entry& entry);
  void late(Entry& entry);
  void collect();
  void settle();

  Loop& loop_;
  Handlers handlers_;
  std::shared_ptr<Mailbox> mailbox_;
  FdWatch watch_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<std::function<void()>> waiting_;
};

}  // namespace mm::agent
