// SPDX-License-Identifier: Apache-2.0
// mm-agentd of one node: puts the parts together, routes messages of local clients and of other agents to them, and keeps what must survive
// the agent in STATE_DIR/agent-NODE.json.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "agent/daemon/advice.h"
#include "agent/daemon/context.h"
#include "agent/daemon/desk.h"
#include "agent/daemon/events.h"
#include "agent/daemon/hardware.h"
#include "agent/daemon/health.h"
#include "agent/daemon/jobs.h"
#include "agent/daemon/kernel_watch.h"
#include "agent/daemon/neighbours.h"
#include "agent/daemon/ranks.h"
#include "agent/daemon/stragglers.h"
#include "agent/daemon/time_limits.h"
#include "agent/daemon/unattended.h"
#include "agent/http/metrics_server.h"
#include "agent/incidents/clock_skew.h"
#include "agent/incidents/history.h"
#include "agent/local/memory_keeper.h"
#include "agent/local/server.h"

namespace mm::agent {

class Agent {
 public:
  // Throws an Error where the state folder or the socket cannot be had.
  Agent(Loop& loop, const Site& site, const std::string& node);
  // Called once, when the local socket answers.
  void start();
  // A changed configuration. What has been opened (sockets, logs, libraries, folders) stays until the agent is started again.
  void reload(const Site& site);
  // Saves what is not saved yet.
  void stop();

 private:
  // agent.cc
  void clock_heard(const std::string& from, const KeyValues& beat);
  void open_keeper();
  void job_removed(const std::string& job);
  void learn_slurm();
  void slurm_learnt(const AddressBook& book, const SlurmConfig& config, bool from_cache);
  void load_state();
  void save_soon();
  void save_now();
  void told(const std::string& from, const KeyValues& message);
  void asked(const std::string& from, const KeyValues& message, const Mesh::Reply& reply);
  // requests.cc
  void local_message(ClientId client, const Peer& peer, std::string_view text);
  void local_request(ClientId client, const Peer& peer, const KeyValues& message);
  Job& job_for(const Peer& peer, const std::string& id);
  std::string status_json(const Peer& peer, const std::string& job) const;
  std::string events_json(const Peer& peer, int64_t since, bool& more) const;
  void check(ClientId client, bool run);
  void clear(ClientId client);
  void history(ClientId client, const Peer& peer, const KeyValues& message);
  std::string findings_json() const;
  void answer(ClientId client, const KeyValues& message);
  // metrics.cc
  std::string metrics_text() const;

  Context c_;
  Events events_;
  Ranks ranks_;
  Jobs jobs_;
  Neighbours neighbours_;
  Desk desk_;
  Health health_;
  Advice advice_;
  TimeLimits time_limits_;
  Unattended unattended_;
  Stragglers stragglers_;
  History history_;
  std::optional<KernelWatch> kernel_;
  std::optional<HardwareWatch> hardware_;
  std::unique_ptr<MetricsServer> metrics_;
  std::optional<MemoryKeeper> keeper_;
  ClockSkew clock_skew_;
  std::map<std::string, int64_t> incident_counts_;  // by class, since the start
  std::string kernel_position_;  // as saved by an earlier agent
  std::string state_path_, slurm_cache_path_;
  bool save_pending_ = false, learning_ = false;
  LocalServer server_;
};

}  // namespace mm::agent
