// SPDX-License-Identifier: Apache-2.0
// Heartbeats between the agents of a job, and what their absence means.
//
// Silence of a peer: no message for silent_ms. One monitor's view is not enough: it asks the other monitors of that node, and tries its
// slurmd's port. A verdict needs the silence at two monitors (where there is another live one) and a port that does not answer; a port that
// answers, or a monitor that still hears the node, means that an agent is dead or a link between agents is: an alert, never a verdict.
// The verdict goes to the judge, the first node of the job (in its order) that is alive and reaches slurmctld; the judge looks at the
// port itself, opens the incident, tells all nodes of the job at once, and has Slurm drain the node and set it down. So a part of the
// cluster that is cut off from slurmctld condemns nobody.
//
// Self-fence: where a job's ranks run here, and neither a majority of the job's monitored nodes nor slurmctld has been reached for fence_ms,
// the ranks are killed: the job may be running elsewhere by now. slurmctld is only tried while the majority is missing;
// where it answers, it is asked whether the job is still here: the others may have gone on without this node.
//
// Lateness: when the loop itself was late (stopped, starved of CPU), nobody is judged for one silent_ms more.
#pragma once

#include <map>
#include <set>
#include <string>

#include "agent/daemon/context.h"
#include "agent/daemon/events.h"
#include "agent/daemon/jobs.h"
#include "agent/daemon/ranks.h"

namespace mm::agent {

class Neighbours {
 public:
  Neighbours(Context& context, Events& events, Ranks& ranks, Jobs& jobs);

  // Begins or ends to beat, as the registry demands.
  void registry_changed();
  // Any message of `from` that the mesh has accepted.
  void heard(const std::string& from);
  void beat_received(const std::string& from, const KeyValues& message);
  // Requests of other agents.
  KeyValues age_of(const std::string& node) const;                           // VERB=heard
  void report_received(const KeyValues& message, const Mesh::Reply& reply);  // VERB=silent
  // An incident that another agent raised.
  void incident_received(const Incident& incident);

 private:
  void tick();
  void look_at(const std::string& peer);
  struct Inquiry;
  void conclude(const std::shared_ptr<Inquiry>& inquiry);
  void report(const std::shared_ptr<Inquiry>& inquiry, size_t candidate);
  void be_judge(const std::string& peer, const std::string& evidence, std::function<void(const std::string& refusal)> done);
  void condemn(const std::string& peer, const std::string& evidence);
  void take_down(const std::string& peer, const std::string& reason);
  void fence(Clock::time_point now);
  void try_controller();
  const Job* shared_job(const std::string& peer) const;
  bool hears(const std::string& peer) const;

  Context& c_;
  Events& events_;
  Ranks& ranks_;
  Jobs& jobs_;
  Timer beat_timer_;
  bool beating_ = false;
  Clock::time_point last_tick_;
  std::map<std::string, Clock::time_point> look_again_;  // suspects; an inquiry in progress has the far future
  std::set<std::string> alerted_;                        // silent agents that an alert was raised for
  std::set<std::string> judging_;
  Clock::time_point controller_reached_, controller_tried_, verified_alone_;
  std::set<std::string> isolated_, fenced_;  // jobs
};

}  // namespace mm::agent
