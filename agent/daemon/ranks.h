// SPDX-License-Identifier: Apache-2.0
// The ranks of this node: registered by Slurm's side as root, watched through pidfds (so that an end is seen at once even where the word of
// it is lost), followed in their progress, and killed on request. The agents are the only killers of ranks.
//
// Kill of a step (by its owner): the agent that is asked kills its own ranks and asks the agents of all other nodes of the step; each sends
// SIGKILL, waits until the processes have ended, and answers. A step that was killed stays so: a rank of it that registers late, because
// its launch was still under way, is killed at its registration.
//
// Hang: each agent looks for ranks of its own that have had no progress for longer than their limit, and reports them to one agent, that of
// the batch node. That one asks all nodes of the step for the state of their ranks, so that one rank is blamed: the one that the others
// wait for (registry/progress.h).
#pragma once

#include <map>
#include <set>
#include <string>

#include "agent/daemon/context.h"
#include "agent/daemon/events.h"

namespace mm::agent {

class Ranks {
 public:
  Ranks(Context& context, Events& events);

  // VERB=task (of one or more tasks) and VERB=exit. Throw an Error that says what is wrong with the message.
  void add(const KeyValues& message);
  void exited(const KeyValues& message);
  // Progress from process `pid`; false where no registered rank is that process or an ancestor.
  bool progress(pid_t pid, const KeyValues& message);
  // After a restart of the agent: watches what is still there and reports what ended meanwhile.
  void resume();

  // Kills the ranks of a step on this node; `done` gets how many, when they have ended. An empty step is all steps that are here now.
  void kill_here(const std::string& job, const std::string& step, std::function<void(int)> done);
  // On all nodes of the step. `late`: nodes that did not answer.
  void kill_everywhere(const Job& job, const std::string& step, std::function<void(int killed, std::vector<std::string> late)> done);
  // Ends everything of the job on this node: ranks, the steps' slurmstepds, the batch script. Only for jobs that end or run elsewhere.
  int tear_down(Job& job);
  // Only the ranks.
  int kill_ranks(Job& job);
  // Steps of the job that were killed by request, as far as this agent knows.
  std::vector<std::string> killed_steps(const std::string& job) const;

  // The job has ended: what was remembered of its steps goes.
  void forget(const std::string& job);
  // A new run of a requeued job begins: what the run before has left here is killed. Steps that registered within the last seconds are the
  // new run's, faster than the word of it.
  int end_earlier_run(Job& job);

  // Requests of other agents.
  KeyValues states(const std::string& job, const std::string& step) const;
  void suspect_hang(const std::string& job, const std::string& step, const std::vector<std::string>& nodes);

  // Called when a job has no more processes here.
  void on_empty(std::function<void(const std::string& job)> handler) { emptied_ = std::move(handler); }

 private:
  struct Watched {
    UniqueFd pidfd;
    FdWatch watch;
  };
  static std::string key(const std::string& job, const std::string& step, int rank);
  void watch(const std::string& job, const std::string& step, int rank, const ProcessId& process);
  void ended(const std::string& job, const std::string& step, int rank);
  void report_exit(const std::string& job, const std::string& step, int rank);
  void settle(const std::string& job, const std::string& step);
  void look_for_hangs();
  void judge(const std::string& job, const std::string& step, const std::vector<std::string>& nodes);
  void flush_progress();

  struct Kill {
    int killed = 0;
    std::function<void(int)> done;
    std::unique_ptr<Timer> timer;
  };

  Context& c_;
  Events& events_;
  std::map<std::string, Watched> watched_;
  std::multimap<std::string, Kill> kills_;  // by job/step
  std::map<std::pair<std::string, std::string>, Clock::time_point> killed_;
  std::set<std::pair<std::string, std::string>> hangs_judged_, hangs_in_judgement_;
  std::map<std::string, KeyValues> progress_to_send_;  // by job/step
  Timer hang_timer_, progress_timer_;
  bool hang_timer_runs_ = false, progress_timer_runs_ = false;
  std::map<std::string, Clock::time_point> next_hang_report_;
  std::function<void(const std::string&)> emptied_;
};

}  // namespace mm::agent
