// SPDX-License-Identifier: Apache-2.0
// What the agent asks Slurm to do, through Slurm's commands. Every call blocks for up to the commands' deadlines: for a worker. Every call
// is idempotent: it reads first and does what is still missing, so that two agents, or one that was restarted, may do it twice.
//
// A reason that somebody else wrote is never replaced or cleared: where a command demands a reason, theirs is used again, word for word.
#pragma once

#include <string>
#include <vector>

#include "agent/slurm/parse.h"

namespace mm::agent {

// What every reason of ours begins with.
inline constexpr std::string_view reason_mark = "mm-agent: ";

class Slurm {
 public:
  // slurm_conf: passed on as SLURM_CONF, unless empty.
  Slurm(std::string slurm_conf, bool dry_run) : slurm_conf_(std::move(slurm_conf)), dry_run_(dry_run) {}

  // All nodes where `nodes` is empty. These throw an Error with Slurm's own message.
  std::string nodes_text(const std::string& nodes = "") const;
  std::string config_text() const;
  std::vector<NodeRecord> nodes(const std::string& list = "") const { return parse_nodes(nodes_text(list)); }
  // Nothing where Slurm does not know the job (any more).
  std::optional<JobRecord> job(const std::string& id) const;

  // The node is drained (reachable and bad). Returns what happened, for a person: "drained", "was drained already (reason: ...)".
  std::string drain(const std::string& node, const std::string& reason) const;
  // Takes back a drain that an agent made, which its reason tells; throws an Error where it is somebody else's. Returns as drain.
  std::string undrain(const std::string& node) const;
  // The node is drained, then down (unreachable). Returns as drain.
  std::string drain_and_down(const std::string& node, const std::string& reason) const;

  // The two halves of a requeue of the job's run number `restarts`, see agent/daemon/jobs.h.
  void requeue(const std::string& job, int restarts) const;
  // Lets the pending job start at once, without the excluded nodes and with fewer nodes where it had spares. Its number of tasks is made to
  // fit the fewest nodes: Slurm holds a job whose tasks cannot fit.
  enum class Released { done, not_yet, gone };
  Released release(const std::string& job, int restarts, const std::string& exclude, int least_nodes, int most_nodes) const;
  void cancel(const std::string& job) const;

 private:
  std::string run(const std::vector<std::string>& argv) const;
  void change(const std::vector<std::string>& argv) const;  // not in a dry run
  NodeRecord node(const std::string& name) const;

  std::string slurm_conf_;
  bool dry_run_;
};

// The reason to give for a node: the one it has, or ours where it has none.
const std::string& reason_to_give(const NodeRecord& node, const std::string& ours);
// The union of two host lists, in order, without duplicates.
std::string merge_hostlists(const std::string& a, const std::string& b);

}  // namespace mm::agent
