// SPDX-License-Identifier: Apache-2.0
// Where reports about this node become incidents. One fault, however often it is reported, is one incident with one number: it is told again only
// where its action or severity got worse, and its count at every power of ten. Reports that ask for nothing are kept for the history and
// for predictions, and told to nobody.
//
// Drains: only for a report whose action is drain, with a reason that quotes it. Before, the cluster's brake is asked: the agent of the first
// node that answers counts the nodes that agents have drained within the hour (Slurm knows them, by their reasons), and refuses where
// they are max(1, share of all nodes). A refused drain is an alert and is tried again while the fault lasts; the incident itself has
// gone out before, so that jobs leave the node in any case. Retries are endless, and stop when the fault is over.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/daemon/context.h"
#include "agent/daemon/events.h"
#include "agent/incidents/report.h"

namespace mm::agent {

class Desk {
 public:
  Desk(Context& context, Events& events);

  // `key` names the fault: the same again is the same incident. Returns its number, or 0 for one that is only kept.
  int64_t report(const std::string& key, const Report& report);
  // The fault is over; `words` may say how.
  void over(const std::string& key, const std::string& words = "");
  bool is_open(const std::string& key) const { return open_.contains(key); }
  // Faults that are open and keep the node out of launches, a line each.
  std::vector<std::string> problems() const;
  // What foretells a failure, if anything does.
  std::optional<std::string> doubt() const;
  struct Open {
    int64_t id = 0;
    Report report;
    double time = 0;
    bool draining = false, drained = false;
  };
  const std::map<std::string, Open>& open() const { return open_; }
  Incident incident_of(const Open& open) const;
  // Once Slurm is known: drains that an earlier agent began are finished. One that was done is not done again: the node may have been repaired.
  void resume();
  // By an admin's word, around a check and the undrain. Begins when no drain is under way any more, and none is begun until it ends: so none
  // can come after the undrain. False: another clear is under way. Done, what was open at the begin is no more; what came since is drained.
  bool begin_clear(std::function<void()> ready);
  void end_clear(bool done);
  void on_report(std::function<void(const Incident&)> handler) { kept_ = std::move(handler); }

  // VERB=permit of another agent, or of this one: may `node` be drained now? `done` gets the refusal, empty for yes. Blocks nothing.
  void ask_brake(const std::string& node, std::function<void(const std::string& refusal)> done);

  // Survives the agent.
  std::string state_to_text() const;
  void state_from_text(const std::string& text);

 private:
  void tell(const Incident& incident);
  void drain(const std::string& key, size_t keeper);
  void drain_now(const std::string& key);
  void drain_later(const std::string& key, const std::string& why);
  void drain_ended();

  Context& c_;
  Events& events_;
  std::map<std::string, Open> open_;
  std::map<std::string, Clock::time_point> permits_;  // given within the last seconds: Slurm may not show them yet
  std::function<void(const Incident&)> kept_;
  int drains_under_way_ = 0;
  bool clearing_ = false;
  std::function<void()> ready_to_clear_;
  std::map<std::string, int64_t> to_clear_;   // keys and numbers
  std::vector<std::string> drains_put_off_;  // by a clear
};

}  // namespace mm::agent
