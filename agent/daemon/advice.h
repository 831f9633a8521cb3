// SPDX-License-Identifier: Apache-2.0
// What the agent says to the ranks of its node, the other way on the socket of their progress: to those that have sent LISTEN=1.
//
//   ADVICE=save              a failure is foretold, or the ranks are to move: save a checkpoint soon
//   ADVICE=end END=t         the job's time is over at t, in seconds since 1970: save and end before. Told anew where it changes.
//   ADVICE=shrink LEVEL=n    the node's memory or CPUs are short, for long: need less of them, at each level (1 to 3) half of what was
//                            needed before. Loader threads and caches are meant, never what changes the result.
//   WHY=                     with each: a line for people
//
// Shortage: while a fault of the host probe that a job may have caused is open, the level rises once a minute. Where the third has not helped and
// every job of the node has a spare, the node's ranks are moved like a straggler: an incident that asks for a restart without the node.
#pragma once

#include <map>
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

  void listen(ClientId client, const std::string& job);
  bool listens(ClientId client) const { return listeners_.contains(client); }
  void forget(ClientId client) { listeners_.erase(client); }
  // VERB=advise of another agent, or of this one: ADVICE= for the ranks of JOB= that listen here, and its other keys. When the time of
  // the job's run RESTARTS= is over is kept for those that will listen later.
  void tell_job(const KeyValues& message);
  void job_ended(const std::string& job) { ends_.erase(job); }
  void incident(const Incident& incident);
  void look(Clock::time_point now);

 private:
  void tell(KeyValues message, const std::string& why);

  Context& c_;
  Events& events_;
  Desk& desk_;
  Send send_;
  std::map<ClientId, std::string> listeners_;  // with their jobs
  struct End {
    int64_t run = 0;  // Slurm's count of restarts
    std::string packet;
  };
  std::map<std::string, End> ends_;  // by job
  int level_ = 0;
  Clock::time_point next_, next_save_;
  Timer timer_;
};

}  // namespace mm::agent
