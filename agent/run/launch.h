// SPDX-License-Identifier: Apache-2.0
// What is known of the launch that runs: evidence from the agents' events and from srun's own messages, each told once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/recovery/policy.h"
#include "agent/run/clock.h"
#include "agent/run/srun_command.h"
#include "common/key_values.h"

namespace mm::run {

struct Progress {
  std::optional<int64_t> step;  // steps finished
  bool trained = false;         // with a loss: a step of this launch, not the one that it resumed from
  std::string phase;
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
  // The ranks have been asked to save; holds until the next checkpoint.
  void asked_to_save() { asked_to_save_ = true; }
  bool is_asked_to_save() const { return asked_to_save_; }
  int64_t checkpoint() const { return checkpoint_; }  // step of the newest one, -1 where none is known
  const std::vector<std::string>& nodes() const { return nodes_; }
  int ranks() const { return ranks_; }
  std::string step_id() const;  // empty while unknown
  int64_t last_step() const { return step_id_.value_or(last_step_); }
  // When the first symptom happened (wall clock), as far as the events tell; `now` where there is none.
  double fault_time(Instant now) const { return fault_time_.value_or(now.wall); }
  // When that was known here (wall clock).
  double known_time(Instant now) const { return symptom_at_ ? now.wall - (now.steady - *symptom_at_) : now.wall; }

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
  int64_t checkpoint_ = -1;
  bool asked_to_save_ = false;
  recovery::Evidence evidence_;
  std::optional<double> symptom_at_, fault_time_;
  std::optional<Progress> progress_;
};

// An incident as an event tells it.
recovery::Incident incident_of(const KeyValues& event);

}  // namespace mm::run
