// SPDX-License-Identifier: Apache-2.0
// Looks for ranks that are slower than those that do the same work (registry/pace.h).
//
// One agent of a step judges, that of the batch node, or the first that lives: it asks the agents of the step's nodes for the paces of their ranks,
// every five seconds, and less often where the nodes are more than a hundred. Who is slow three times on end is an incident, whose class
// is that of the fault which its node knows of, if any; where it goes on for straggler_s of the site and the job has a spare, the rank is
// moved: the incident asks for a restart without its node.
#pragma once

#include <map>
#include <string>
#include <tuple>

#include "agent/daemon/context.h"
#include "agent/daemon/desk.h"
#include "agent/daemon/events.h"
#include "agent/registry/pace.h"

namespace mm::agent {

class Stragglers {
 public:
  Stragglers(Context& context, Events& events, Desk& desk);
  void start();
  // VERB=paces of another agent: a line for each rank, and what is known to be wrong with this node.
  KeyValues paces(const std::string& job, const std::string& step) const;

 private:
  using Key = std::tuple<std::string, std::string, int>;  // job, step, rank
  void look();
  void judge(const std::string& job, const std::string& step, const Context::Answers& answers);
  void tell(const Job& job, const std::string& step, const Straggler& slow, const KeyValues& node, bool move);
  int times_to_move() const;

  Context& c_;
  Events& events_;
  Desk& desk_;
  Timer timer_;
  std::map<Key, int> slow_;  // how often on end
  std::map<Key, int64_t> incidents_;
  std::map<std::pair<std::string, std::string>, Clock::time_point> next_;
};

}  // namespace mm::agent
