// SPDX-License-Identifier: Apache-2.0
// The run loop of mm-run.
//
// One launch after another:
//   1. The agents probe every node of the allocation. A slot keeps its node while it is good; else the first good spare takes the slot.
//   2. srun is started on exactly those nodes.
//   3. Its end, what it prints, the events of the agents and the signals sent to mm-run are waited for together, and after each the policy is
//      asked (agent/recovery/policy.h).
//   4. A restart stops the step: the agents kill its ranks on every node that they reach, then srun is killed with SIGKILL (its remaining child
//      has slurmctld end the step), and the next launch follows at once. Never by scancel or by a polite end of srun, which wait for nodes
//      that do not answer.
// Draining nodes is the agents' business, never done from here; so is a requeue, which mm-run only asks for.
//
// supervisor.cc is the loop and what it does, nodes.cc finds the nodes of a launch, inputs.cc takes in what comes.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/recovery/step_log.h"
#include "agent/run/agent_link.h"
#include "agent/run/headway.h"
#include "agent/run/launch.h"
#include "agent/run/ledger.h"
#include "agent/run/options.h"
#include "agent/run/roster.h"
#include "agent/run/srun_process.h"

namespace mm::run {

class Supervisor {
 public:
  explicit Supervisor(Plan plan);
  // Runs to the end; the exit status of mm-run.
  int run();

 private:
  using Action = recovery::Action;

  // supervisor.cc
  void note_requeue();
  void launch();
  Action observe();
  void stop_step();
  void restart(const Action& action);
  void shrink(const Action& action);
  std::optional<Action> hold(const Action& action);
  void ask_for_requeue(const Action& action);
  void wait_for_srun(double patience);
  int finish(const Action& action);
  void tell_log();
  void say(const char* event, const std::string& text, const std::string& details = {});
  recovery::JobState job_state() const;

  // nodes.cc
  std::optional<Action> choose();  // fills the slots; an action where there is nothing to launch on
  bool cut_off(const std::optional<AgentLink::Probe>& probe) const;

  // inputs.cc
  // Waits for whatever comes first, at most until `deadline` (of the steady clock), and takes it in.
  void poll_once(double deadline);
  // Takes in what comes for so long, in seconds, or until somebody asks for the end.
  void pass(double seconds);
  void asked_to_end(int number);
  void srun_gone();
  void end_leftovers();
  void read_agent();
  void read_stderr();
  void read_step_id();
  void follow_agent();
  void note_incident(const recovery::Incident& incident);
  void note_progress(const Progress& progress);

  Plan plan_;
  AgentLink agent_;
  Ledger ledger_;
  UniqueFd signals_;
  Pipe stderr_, step_pipe_;
  LineCutter stderr_lines_, step_lines_;
  recovery::StepLog step_log_;  // of this launch
  std::optional<SrunProcess> srun_;
  std::vector<UniqueFd> leftovers_;  // children of the last srun, until leftovers_end_
  double leftovers_end_ = never;
  std::optional<Launch> launch_;
  Roster roster_;
  Headway headway_;
  std::set<std::string> told_incidents_;
  std::optional<double> slurm_away_since_;
  double next_agent_try_ = 0;
  bool agent_told_ = false;
  int stop_signal_ = 0;  // that asked for the end
};

}  // namespace mm::run
