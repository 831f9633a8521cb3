// SPDX-License-Identifier: Apache-2.0
// The nodes of the job: which of them the launch uses, which are in reserve, and which are left out and why. Pure; time is
// given, in seconds of a clock that does not jump.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/recovery/policy.h"
#include "agent/run/agent_link.h"

namespace mm::run {

class Roster {
 public:
  Roster(std::vector<std::string> allocation, int needed);

  // There is evidence against the node's hardware.
  void leave_out(const std::string& node, const std::string& why, double now);

  struct Move {
    std::string from, why, to;
  };
  struct Choice {
    bool possible = false;
    bool mended = false;      // a node is among them that was left out before
    std::vector<Move> moves;  // nodes that the probe calls bad now, and where their ranks go
    recovery::Shortage shortage;  // where it is not possible
  };
  // Fills slots() anew where that is possible. Without a probe, every node that is not left out counts as good.
  Choice choose(const std::optional<AgentLink::Probe>& probe, double now);

  const std::vector<std::string>& allocation() const { return allocation_; }
  const std::vector<std::string>& slots() const { return slots_; }    // of the launch, in the order of the ranks
  const std::vector<std::string>& spares() const { return spares_; }  // good ones, at the last choice
  // From now on launches have so many nodes, at most those of before.
  void shrink(int nodes);
  // The job has these nodes and no others any more; returns those that it had.
  std::vector<std::string> keep(const std::vector<std::string>& nodes);
  bool has(const std::string& node) const;
  bool uses(const std::string& node) const;

 private:
  struct LeftOut {
    std::string why;
    double since = 0;
    bool seen_bad = false;  // by a probe since then: one that calls it good now tells that it is mended
  };
  std::vector<std::string> allocation_, slots_, spares_;
  std::map<std::string, LeftOut> left_out_;
};

}  // namespace mm::run
