// SPDX-License-Identifier: Apache-2.0
// The life of jobs as the agents of their nodes see it.
//
// Start: the batch step registers the job with its node's agent, which announces it to the agents of all its nodes (and again to whoever
// hears a heartbeat that names a job it does not know). End: the batch script's process ends, and its agent tells all nodes. An agent that
// missed that asks Slurm: a job none of whose ranks are here is looked up once a minute.
//
// Return of a node that was cut off: it asks Slurm about each of its jobs. Where the job is gone, runs elsewhere or again (another restart
// count), everything that it left here is killed, and the job's other nodes are told that this one is out; where it is still ours, the steps
// that were killed meanwhile are, as the others tell.
//
// Batch node lost (sequence R): a job would stay RUNNING without a script. One agent (the first live node of the job, in its order) does,
// after the node is down: requeue; then all agents kill the job's ranks and slurmstepds; when the job is pending, it is released without the
// lost node. Each step reads the state first, so that a second agent may repeat it where the first one is lost half-way: every agent that
// still has the job looks every few seconds. A job that must not be requeued is cancelled instead: it never stays without a script.
//
// Requeue on request (of its owner, or where nobody watches over it, see daemon/unattended.h): the same, but that the batch script is given
// a second to end by itself, and that a job which has failed meanwhile is requeued all the same. One that was cancelled, or whose script
// made a success of it, is not.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "agent/daemon/context.h"
#include "agent/daemon/events.h"
#include "agent/daemon/ranks.h"

namespace mm::agent {

class Jobs {
 public:
  Jobs(Context& context, Events& events, Ranks& ranks);

  void add_from_batch(const KeyValues& message);  // VERB=job of the plugin
  void add_from_peer(const KeyValues& message);   // VERB=job of another agent
  void ended(const std::string& job, int restarts);
  void resume();

  // A heartbeat of `from` named these jobs ("ID.RESTARTS").
  void heard_of(const std::string& from, const std::string& jobs);
  // This node was cut off and is back (or its agent has been restarted).
  void verify_all();
  // Asks Slurm whether the job still runs here, and ends what it has left here where not.
  void verify(const std::string& job, bool returned);
  // `node` is down in Slurm by our verdict: jobs that had their batch script there are requeued, if that is for this agent to do.
  void batch_node_lost(const std::string& node);
  // The owner's word, or that of Unattended: the job runs again, without the nodes of `exclude`. Throws where it has no batch script or must
  // not be requeued.
  void requeue_on_request(const Job& job, const std::vector<std::string>& exclude, const std::string& why);
  // A node of the job found that it is no longer one.
  void left(const std::string& job, int restarts, const std::string& node);
  // A requeued job needs so many nodes; what it has beyond them are its spares, now and after the next requeue.
  void set_needed(const std::string& job, int nodes);
  const std::map<std::string, int>& needed() const { return needed_; }
  // Called when this node has nothing more to do with a job.
  void on_removed(std::function<void(const std::string& job)> handler) { removed_ = std::move(handler); }
  // Ends what the run `restarts` of the job has left here; answers how much that was.
  int tear_down(const std::string& job, int restarts);

 private:
  void add(Job job);
  void ask_for_restarts(const std::string& job);
  void announce(const Job& job);
  void batch_ended(const std::string& job);
  void count_spares(Job& job) const;
  void remove(const std::string& job);
  void forget_run(const std::string& job, int restarts);
  void verdict(const std::string& job, const std::optional<JobRecord>& record, bool returned);
  void kill_steps_killed_meanwhile(const Job& job);
  void look_after();
  bool is_for_me(const Job& job) const;

  struct Requeue {
    Job job;
    std::string why;
    std::vector<std::string> exclude;  // besides what is silent
    bool requested = false;
  };
  void requeue(const Job& job);  // its batch node is lost
  void begin(const Requeue& r);
  void tear_down_everywhere(const Requeue& r);
  void release(const Requeue& r, Clock::time_point give_up);
  void finish(const Requeue& r, const std::string& how);
  void retry_later(const Requeue& r);

  Context& c_;
  Events& events_;
  Ranks& ranks_;
  struct Batch {
    UniqueFd pidfd;
    FdWatch watch;
  };
  std::map<std::string, Batch> batches_;
  std::set<std::string> ending_, requeueing_, verifying_;
  std::map<std::string, Clock::time_point> last_verified_;
  std::map<std::string, int> needed_;
  std::set<std::string> over_;  // runs of jobs ("ID.RESTARTS") that have ended or that this node is out of
  std::function<void(const std::string&)> removed_ = [](const std::string&) {};
  Timer timer_;
};

}  // namespace mm::agent
