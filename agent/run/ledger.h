// SPDX-License-Identifier: Apache-2.0
// The books of a run: what each fault cost, and RUN/incidents.jsonl, a line a fault. Time is given by the caller, in seconds.
//
// The time that a fault cost runs from the fault to the next training step that a rank reports; where ranks report nothing, to
// the next launch. What was computed twice is counted in steps. How the time passed is kept in parts: until the fault was known here
// (detect), until it was decided what to do (decide), until the next srun was started (stop), until a rank of it spoke (start), until it had
// loaded (load), until its first step was done (step).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/recovery/policy.h"

namespace mm::run {

class Ledger {
 public:
  // `path` is the file that lines are appended to; empty: none. Its folder is made where it is missing.
  Ledger(std::string path, double now);

  // The job was requeued after a fault at `fault_time`: this run continues one that has ended.
  void requeued(double fault_time, const std::string& evidence);
  void launched(const std::vector<std::string>& nodes, double now);
  // A training step is finished, of a launch that began after `resumed` of them; true where it ends a recovery, whose line is
  // then written.
  bool stepped(int64_t step, int64_t resumed, double now);
  // A launch ends for `action`, at `now`; the fault was at `fault_time`, and known at `known`.
  void fault(const recovery::Action& action, double fault_time, double known, double now);
  // The next launch has come so far: the end of the part `name` of the recovery, where it is told for the first time.
  void reached(const char* name, double now);
  // The run ends, and the job is to be requeued.
  void asks_for_requeue(const recovery::Action& action, double now);
  // Writes nothing any more: another run keeps the books.
  void abandon();
  // The run is over. Returns its last line: restarts, time of training, time lost by cause.
  std::string close(const std::string& outcome, double now);

  std::optional<int64_t> step() const { return step_; }
  int restarts() const { return restarts_; }
  double last_lost() const { return last_lost_; }
  // The line of the newest fault as JSON, for --json.
  const std::string& last_line() const { return last_line_; }

 private:
  struct Open {
    recovery::Action action;
    double fault_time = 0;
    std::vector<std::string> nodes;
    std::optional<int64_t> step_before;
    std::vector<std::pair<const char*, double>> parts = {};  // in order, with their ends
  };
  struct Resumed {
    int64_t step_after, resumed;
  };
  void book(double until, std::optional<Resumed> at);

  std::string path_, last_line_;
  double began_, training_ = 0, last_lost_ = 0;
  std::optional<double> training_since_;
  std::optional<int64_t> step_;
  std::optional<Open> open_;
  std::vector<std::string> nodes_;
  std::map<std::string, double> lost_;
  int restarts_ = 0;
};

// The faults and requeues that the file's last lines tell of, of which none led to a training step; 0 where there is no such file.
int fruitless_ends(const std::string& path);

}  // namespace mm::run
