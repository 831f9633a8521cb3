// SPDX-License-Identifier: Apache-2.0
#include "agent/run/supervisor.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

#include "agent/recovery/exits.h"
#include "agent/run/clock.h"
#include "agent/run/launch_size.h"
#include "agent/run/reports.h"
#include "agent/run/scavenge.h"
#include "agent/run/streams.h"
#include "common/error.h"
#include "common/hostlist.h"
#include "common/log.h"
#include "common/process.h"

namespace mm::run {
namespace {

// srun sees the end of a step, up to some seconds after the agents, on every node.
constexpr double patience_with_srun = 5;
constexpr double between_launches = 1;  // that Slurm does not take yet
// srun's child that ends the step is done in a tenth of that, unless this node is cut off. When it is back, the job may run again elsewhere, and
// the step's number may be that of a step of the new run.
constexpr double patience_with_leftovers = 2;
// Ranks whose peer ended with an error of the user's are given so long to end on their own.
constexpr double grace_for_others = 3;

std::string books_of(const Plan& plan) { return plan.run_folder.empty() ? "" : plan.run_folder + "/incidents.jsonl"; }

recovery::Budget budget_of(const Plan& plan) {
  return {plan.max_restarts, plan.requeues > 0 ? fruitless_ends(books_of(plan)) : 0, std::strtoull(plan.job_id.c_str(), nullptr, 10)};
}

}  // namespace

Supervisor::Supervisor(Plan plan)
    : plan_(std::move(plan)),
      agent_(plan_.agent_socket, plan_.job_id),
      ledger_(books_of(plan_), now().wall),
      signals_(signal_descriptor()),
      stderr_(make_pipe()),
      roster_(plan_.allocation, plan_.nodes),
      headway_(budget_of(plan_)) {}

void Supervisor::say(const char* event, const std::string& text, const std::string& details) {
  log::info("{}", text);
  if (plan_.json) write_all(STDOUT_FILENO, event_line(event, now().wall, plan_.job_id, text, details) + "\n");
}

// Where the job was requeued, the last training step is the last thing that is known of the run before.
void Supervisor::note_requeue() {
  if (plan_.requeues == 0) return;
  std::string since;
  struct stat s;
  if (!plan_.run_folder.empty() && ::stat((plan_.run_folder + "/metrics.jsonl").c_str(), &s) == 0) {
    const double last = static_cast<double>(s.st_mtim.tv_sec) + static_cast<double>(s.st_mtim.tv_nsec) * 1e-9;
    ledger_.requeued(last, fmt::format("the job was requeued (requeue {})", plan_.requeues));
    since = fmt::format(", {:.1f} s after the last training step", now().wall - last);
  }
  say("requeued", fmt::format("the job was requeued{}; continuing from the newest checkpoint", since));
}

int Supervisor::run() {
  note_requeue();
  if (plan_.requeues == 0) write_launch_size(plan_.run_folder, plan_.job_id, plan_.nodes);
  follow_agent();
  for (;;) {
    if (auto end = choose()) return finish(*end);
    launch();
    const Action action = observe();
    switch (action.kind) {
      case Action::Kind::restart:
      case Action::Kind::smaller:
        restart(action);
        break;
      case Action::Kind::hold:
        if (auto end = hold(action)) return finish(*end);
        break;
      default:
        return finish(action);
    }
  }
}

recovery::JobState Supervisor::job_state() const {
  recovery::JobState job;
  job.nodes = roster_.slots();
  job.ranks = plan_.tasks_per_node * static_cast<int>(job.nodes.size());
  job.stopping = stop_signal_ != 0;
  job.spares = static_cast<int>(roster_.spares().size());
  for (const Plan::Fit& fit : plan_.fits) job.fits.push_back(fit.nodes);
  job.requeues = plan_.may_requeue;
  job.step = headway_.step();
  if (launch_) {
    job.checkpoint = launch_->checkpoint();
    job.asked_to_save = launch_->is_asked_to_save();
  }
  return job;
}

void Supervisor::launch() {
  headway_.launched();
  step_log_.clear();
  step_pipe_ = make_pipe();
  step_lines_ = LineCutter();
  UniqueFd hosts;
  std::vector<int> inherited = {step_pipe_.write.get()};
  if (plan_.plugin) {
    hosts = memory_file(hostfile(plan_, roster_.slots()));
    inherited.push_back(hosts.get());
  }
  const auto environment = srun_environment(environ, roster_.slots(), ledger_.restarts(), step_pipe_.write.get(),
                                            hosts ? std::optional<int>(hosts.get()) : std::nullopt);
  launch_.emplace(roster_.slots(), plan_.tasks(), launch_ ? launch_->last_step() : -1);
  srun_.emplace(srun_command(plan_, roster_.slots()), environment, stderr_.write.get(), inherited);
  step_pipe_.write.reset();
  ledger_.launched(roster_.slots(), now().wall);
  say("launch",
      fmt::format("{} rank{} on {}{}", plan_.tasks(), plan_.tasks() == 1 ? "" : "s", compress_hostlist(roster_.slots()),
                  roster_.spares().empty() ? "" : ", spare: " + compress_hostlist(roster_.spares())));
}

recovery::Action Supervisor::observe() {
  for (;;) {
    const Action action = recovery::decide(launch_->evidence(now()), job_state(), headway_.budget(), headway_.history());
    switch (action.kind) {
      case Action::Kind::settle:
        poll_once(now().steady + action.wait_ms * 1e-3);
        break;
      case Action::Kind::proceed:
        poll_once(never);
        break;
      case Action::Kind::checkpoint:
        launch_->asked_to_save();
        say("saving", action.reason + "; the ranks are asked to save");
        agent_.ask_to_save(action.reason);
        break;
      default:
        return action;
    }
  }
}

// What the failed step wrote itself, beside what the agents saw.
void Supervisor::tell_log() {
  const auto found = step_log_.explain();
  if (found) say("log", fmt::format("the step's own words: {} ({} {}): {}", found->kind(), found->klass, found->code, found->line));
}

// ---------------------------------------------------------------- acting

void Supervisor::stop_step() {
  if (agent_.watching()) {
    const auto killed = agent_.kill(launch_->step_id());
    if (killed && !killed->late.empty()) log::debug("no answer to kill from {}", compress_hostlist(killed->late));
  }
  if (!srun_) return;
  leftovers_ = srun_->kill();
  leftovers_end_ = now().steady + patience_with_leftovers;
  srun_gone();
}

void Supervisor::restart(const Action& action) {
  launch_->stop();
  slurm_away_since_.reset();
  const recovery::Evidence& evidence = launch_->evidence(now());
  ledger_.fault(action, launch_->fault_time(now()), launch_->known_time(now()), now().wall);
  for (const std::string& node : action.exclude) roster_.leave_out(node, action.reason, now().steady);
  std::set<std::string> living;  // those that told of their own fault
  for (const recovery::Incident& i : evidence.incidents) {
    const bool excluded = std::find(action.exclude.begin(), action.exclude.end(), i.node) != action.exclude.end();
    if (excluded && i.id.starts_with(i.node + "/")) living.insert(i.node);
  }
  headway_.restarted(recovery::end_of(evidence, headway_.steps()));
  stop_step();
  tell_log();
  if (plan_.scavenge)
    for (const std::string& node : living) say("scavenged", scavenge(plan_, node));
  const auto step = headway_.steps();
  say("restart", fmt::format("{}; restarting {}{}{}", action.reason,
                             action.exclude.empty() ? "in place" : "without " + compress_hostlist(action.exclude),
                             action.wait_ms > 0 ? fmt::format(" in {:.1f} s", action.wait_ms * 1e-3) : "",
                             step ? fmt::format(", step {} -> resumes from the newest checkpoint", *step) : ""));
  if (action.kind == Action::Kind::smaller) shrink(action);
  pass(action.wait_ms * 1e-3);
}

void Supervisor::shrink(const Action& action) {
  const auto fit = std::find_if(plan_.fits.begin(), plan_.fits.end(), [&](const Plan::Fit& f) { return f.nodes == action.nodes; });
  say("smaller", fmt::format("going on with {} nodes in place of {}{}", fit->nodes, roster_.slots().size(),
                             fit->layout.empty() ? ", in the same layout" : ": " + fit->layout));
  roster_.shrink(fit->nodes);
  plan_.layout = fit->layout;
  plan_.nodes = fit->nodes;
  std::erase_if(plan_.fits, [&](const Plan::Fit& f) { return f.nodes >= plan_.nodes; });
}

std::optional<recovery::Action> Supervisor::hold(const Action& action) {
  const double t = now().steady;
  if (!slurm_away_since_) {
    slurm_away_since_ = t;
    say("waiting", action.reason + "; trying again until it does");
  }
  if (t - *slurm_away_since_ > action.wait_ms * 1e-3) {
    Action end;
    end.kind = Action::Kind::give_up;
    end.cause = "slurm";
    end.reason = fmt::format("{}, for {:.0f} s now", action.reason, t - *slurm_away_since_);
    end.exit_status = exit_status::requeue;
    return end;
  }
  pass(between_launches);
  return std::nullopt;
}

// The agents do it at once. Slurm itself would let the job wait for two minutes.
void Supervisor::ask_for_requeue(const Action& action) {
  ledger_.asks_for_requeue(action, now().wall);
  if (!plan_.may_requeue) return;
  const std::string without = action.exclude.empty() ? "" : " without " + compress_hostlist(action.exclude);
  if (agent_.requeue(action.exclude, action.reason)) return say("requeue", fmt::format("{}; the agents requeue the job{}", action.reason, without));
  const CommandResult done = run_command({"scontrol", "requeue", plan_.job_id}, std::chrono::seconds(10));
  if (done.ok()) return say("requeue", action.reason + "; Slurm requeues the job, in about two minutes");
  log::warn("{}; the job is not requeued: no agent does it ({}), nor Slurm: {}", action.reason, agent_.why_not(), done.err.substr(0, done.err.find('\n')));
}

void Supervisor::wait_for_srun(double patience) {
  const double deadline = now().steady + patience;
  while (srun_ && now().steady < deadline) poll_once(deadline);
}

int Supervisor::finish(const Action& action) {
  if (action.kind == Action::Kind::give_up) {
    if (launch_) {
      wait_for_srun(grace_for_others);
      ledger_.fault(action, launch_->fault_time(now()), launch_->known_time(now()), now().wall);
      if (srun_) stop_step();
    }
    log::error("giving up: {}", action.reason);
  }
  read_stderr();
  if (action.kind == Action::Kind::give_up || (action.kind == Action::Kind::finished && action.exit_status != 0)) tell_log();
  if (action.kind == Action::Kind::requeue) {
    // The agents tell that all ranks have ended before srun knows. Where srun goes while the step is not over on every node, Slurm keeps the cores
    // of those nodes for minutes, and the job waits for them.
    wait_for_srun(patience_with_srun);
    ask_for_requeue(action);
  }
  const char* outcome = action.kind == Action::Kind::requeue                               ? action.cause == "requeue" ? "saved, asks for requeue" : "asks for requeue"
                        : action.kind == Action::Kind::finished && action.exit_status == 0 ? "finished"
                                                                                           : "ended";
  const std::string text = ledger_.close(outcome, now().wall);
  say("end", fmt::format("{}, exit status {}", text, action.exit_status));
  return action.exit_status;
}

}  // namespace mm::run
