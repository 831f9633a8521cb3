// SPDX-License-Identifier: Apache-2.0
// The probes of this node, from their results to the desk, and what is foretold from them.
//
// A fault that the last run of a probe does not see any more is over. A fault of a GPU that the kernel log has told already is not told twice.
//
// Predictions: a rate of corrected errors that has changed (incidents/rates.h), and a node that has failed several times within weeks (the
// history), ask for a checkpoint. They drain only where the configuration sets a score for that.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "agent/daemon/context.h"
#include "agent/daemon/desk.h"
#include "agent/incidents/history.h"
#include "agent/incidents/rates.h"
#include "agent/probes/probe.h"

namespace mm::agent {

class HardwareWatch {
 public:
  // `kernel_log_reads`: else Xids are asked of NVML.
  HardwareWatch(Context& context, Desk& desk, History& history, bool kernel_log_reads);

  // Once Slurm has told where munged listens; empty is munge's default.
  void slurm_known(const std::string& munge_socket);
  // Runs every probe; `done` is called when all are back, or at the deadline.
  void run_all(milliseconds deadline, std::function<void()> done);
  const std::map<std::string, double>& metrics() const { return metrics_; }
  // Faults that probes see now, as opposed to those that the kernel log told.
  std::vector<std::string> seen_now() const;

 private:
  void result(const std::string& probe, const ProbeResult& result);
  void predict();
  void look_back();

  Context& c_;
  Desk& desk_;
  History& history_;
  ProbeRunner runner_;
  std::map<std::string, std::set<std::string>> seen_;  // keys of the last result, by probe
  std::map<std::string, std::set<std::string>> metric_names_;
  std::map<std::string, double> metrics_;
  RateWatch rates_;
  std::map<std::pair<std::string, std::string>, double> errors_;  // within this window
  std::set<std::string> foretold_;
  Timer predict_timer_, look_back_timer_;
};

}  // namespace mm::agent
