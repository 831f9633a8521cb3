// SPDX-License-Identifier: Apache-2.0
// Where events go: into the journal, to the local clients that watch the job, and to the agents of other nodes. Ranks' events go to the
// job's batch node, because that is where mm-run watches; incidents go to every node of the job.
//
// Ranks end together, and each message between nodes costs four credentials: so an event for the batch node waits a tenth of a second for
// company. An urgent one goes at once, unless one has just gone.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "agent/daemon/context.h"
#include "agent/incidents/incident.h"
#include "agent/local/server.h"

namespace mm::agent {

class Events {
 public:
  using Send = std::function<void(ClientId, const std::string& packet)>;
  Events(Context& context, Send send);

  // Here only. Fills in JOB, NODE and TIME where they are missing.
  void publish(const Job& job, KeyValues event);
  // Here and at the batch node.
  void publish_to_batch(const Job& job, KeyValues event, bool urgent);
  // Progress: to watchers here and, without an answer, to the batch node; not into the journal.
  void progress(const Job& job, KeyValues event);
  // About this node itself, for nobody's job.
  void note(KeyValues event);
  // An incident of a node: for every job that the node is of, here and at all nodes of these jobs; one event with no JOB= where it has none.
  void raise(const Incident& incident);
  // An incident of one job (its JOB is set), here and at all its nodes.
  void raise_for_job(const Job& job, const Incident& incident);

  // From another agent: one event, or several (VERB=events).
  void receive(const KeyValues& event);

  // Local clients.
  void watch(ClientId client, const std::string& job);
  void follow(ClientId client, const Peer& peer);
  void forget(ClientId client);
  bool is_watched(const std::string& job) const;
  // Called with every event of a job that is told here.
  void on_event(std::function<void(const KeyValues& event)> handler) { heard_ = std::move(handler); }

 private:
  KeyValues complete(const Job* job, KeyValues event) const;
  void deliver(const std::string& job, const KeyValues& event);
  void record(const std::string& job, const KeyValues& event);
  void follow_event(const Journal::Event& event);
  void send_to_batch();

  Context& c_;
  Send send_;
  std::map<ClientId, std::string> watchers_;
  std::map<ClientId, Peer> followers_;
  std::function<void(const KeyValues&)> heard_ = [](const KeyValues&) {};
  std::map<std::string, std::vector<KeyValues>> for_batch_;  // by node
  Timer batch_timer_;
  bool batch_waits_ = false;
  Clock::time_point batch_sent_;
};

}  // namespace mm::agent
