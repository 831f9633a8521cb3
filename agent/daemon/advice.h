// SPDX-License-Identifier: Apache-2.0
// What the agent says to the ranks of its node, the other way on the socket of their progress: to those that have sent LISTEN=1.
//
//   ADVICE=save              a failure is foretold: save a checkpoint soon
//   ADVICE=shrink LEVEL=n    the node's memory or CPUs are short, for long: need less of them, at each level (1 to 3) half of what was
//                            needed before. Loader threads and caches are meant, never what changes the result.
//   WHY=                     with both: a line for people
//
// Shortage: while a fault of the host probe that a job may have caused is open, the level rises once a minute. Where the third has not helped and
// every job of the node has a spare, the node's ranks are moved like a straggler: an incident that asks for a restart without the node.
#pragma once

#include <set>
#include <string>

#include "agent/daemon/context.h"
#include "agent/daemon/desk.h"
#include "agent/daemon/events.h"
#include "agent/local/server.h"

namespace mm::agent {

class Advice {
 public:
  using Send = std::function<void(ClientId, const std::string& packet)>;
  Advice(Context& context, Events& events, Desk& desk, Send send);
  void start();

  void listen(ClientId client) { listeners_.insert(client); }
  void forget(ClientId client) { listeners_.erase(client); }
  void incident(const Incident& incident);
  void look(Clock::time_point now);

 private:
  void tell(KeyValues message, const std::string& why);

  Context& c_;
  Events& events_;
  Desk& desk_;
  Send send_;
  std::set<ClientId> listeners_;
  int level_ = 0;
  Clock::time_point next_, next_save_;
  Timer timer_;
};

}  // namespace mm::agent
