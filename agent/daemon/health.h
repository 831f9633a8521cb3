// SPDX-License-Identifier: Apache-2.0
// This node's own hardware and services. A training NIC that had its link and loses it is an incident: all nodes of the node's jobs are told
// at once, and the node drains itself (DRAIN only, it is reachable) with a reason that quotes the evidence. A NIC that never had a link
// since the agent first saw it is taken as not cabled: `check` and `probe` name it, nothing is drained. A slurmd that does not
// listen is an alert: training goes on, and the next launch avoids the node.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "agent/daemon/context.h"
#include "agent/daemon/desk.h"
#include "agent/daemon/events.h"
#include "agent/probes/nic.h"

namespace mm::agent {

class Health {
 public:
  Health(Context& context, Events& events, Desk& desk);

  // Called once Slurm's view of this node is known.
  void slurm_known();

  // What is wrong with this node now, a line each; empty: fit for a launch.
  std::vector<std::string> problems() const;
  // VERB=probe of another agent.
  KeyValues probe() const;
  // VERB=probe of a client: this node and others. `done` gets the answer to the client.
  void probe_nodes(const std::string& list, std::function<void(const KeyValues&)> done);

  bool slurmd_listens() const { return slurmd_listens_; }
  uint16_t slurmd_port() const { return slurmd_port_; }
  const NicProbe& nics() const { return nics_; }

  // Survives the agent: NICs that had a link.
  std::string state_to_text() const;
  void state_from_text(const std::string& text);

 private:
  void nic_changed(const std::string& nic, const NicState& before, const NicState& now);
  void nic_failed(const std::string& nic, const NicState& now);
  void check_slurmd();
  bool is_training_nic(const std::string& nic) const;

  Context& c_;
  Events& events_;
  Desk& desk_;
  std::set<std::string> had_link_;
  NicProbe nics_;
  Timer slurmd_timer_;
  uint16_t slurmd_port_ = 0;
  bool slurmd_listens_ = true;
  int slurmd_misses_ = 0;
  std::string management_nic_;
};

}  // namespace mm::agent
