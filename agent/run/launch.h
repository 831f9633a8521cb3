// SPDX-License-Identifier: Apache-2.0
// What is known of the launch that runs: evidence from the agents' events and from srun's own messages, each told once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/recovery/policy.h"
#include "agent/run/srun_command.h"
#include "common/key_values.h"

namespace mm::run {

// Both clocks, in seconds: events tell wall time, waiting goes by the steady one.
struct Instant {
  double wall = 0, steady = 0;
};

struct Progress {
  std::optional<int64_t> step;  // steps finished
  bool trained = false;         // with a loss: a step of this launch, not the one that it resumed from
};

class Launch {
 public:
  // `last_step` is the highest step id of the job seen so far, or -1: this launch has a higher one.
  Launch(std::vector<std::string> nodes, int ranks, int64_t last_step);

  // Events of other steps of the job are ignored. Evidence against a node that is not of this launch does not count here
  // either.
  void take(const KeyValues& event, Instant now);
  void take(const SrunNews& news, Instant now);
  void srun_ended(int shell_status, Instant now);
  void tell_step(const std::string& step_id);
  // It has been stopped: what still arrives about it means nothing.
  void stop() { stopped_ = true; }

  // The evidence, with waited_ms as of `now`.
  const recovery::Evidence& evidence(Instant now);
  std::optional<Progress> take_progress();
  const std::vector<std::string>& nodes() const { return nodes_; }
  int ranks() const { return ranks_; }
  std::string step_id() const;  // empty while unknown
  int64_t last_step() const { return step_id_.value_or(last_step_); }
  // When the first symptom happened (wall clock), as far as the events tell; `now` where there is none.
  double fault_time(Instant now) const { return fault_time_.value_or(now.wall); }

 private:
  bool is_ours(const std::string& step_id);
  void add_exit(const recovery::RankExit& exit, double when, Instant now);
  void symptom(double when, Instant now);

  std::vector<std::string> nodes_;
  int ranks_;
  int64_t last_step_;
  std::optional<int64_t> step_id_;
  bool stopped_ = false;
  bool told_ = false;  // by srun itself, not guessed
  recovery::Evidence evidence_;
  std::optional<double> symptom_at_, fault_time_;
  std::optional<Progress> progress_;
};

// An incident as an event tells it.
recovery::Incident incident_of(const KeyValues& event);

}  // namespace mm::run
