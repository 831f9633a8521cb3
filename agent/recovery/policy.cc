// SPDX-License-Identifier: Apache-2.0
#include "agent/recovery/policy.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <string_view>

#include "agent/recovery/describe.h"
#include "agent/recovery/exits.h"
#include "agent/recovery/pause.h"
#include "common/error.h"

namespace mm::recovery {
namespace {

using Kind = Action::Kind;

// How long a symptom may wait for its cause, in milliseconds. Agents tell a lost link at once and a silent node after about two
// seconds.
constexpr int after_peer_lost = 2000;
constexpr int after_doubtful_exit = 2000;
constexpr int after_internal = 1000;
constexpr int after_signal = 300;
constexpr int after_launch_failure = 500;
// srun's end without the exits that the agents will tell.
constexpr int after_silent_end = 500;
constexpr int patience_with_controller = 600'000;
constexpr int patience_with_room = 60'000;
constexpr int patience_with_nodes = 60'000;

Action settle(int wait_ms) {
  Action a;
  a.kind = Kind::settle;
  a.wait_ms = wait_ms;
  return a;
}

Action give_up(std::string cause, std::string reason, int status, std::string node = {}) {
  Action a;
  a.kind = Kind::give_up;
  a.cause = std::move(cause);
  a.reason = std::move(reason);
  a.exit_status = status;
  a.node = std::move(node);
  return a;
}

Action end(Kind kind, int status) {
  Action a;
  a.kind = kind;
  a.exit_status = status;
  return a;
}

Action hold(int patience, std::string why) {
  Action a;
  a.kind = Kind::hold;
  a.wait_ms = patience;
  a.reason = std::move(why);
  return a;
}

bool is_spent(const Budget& budget) { return budget.used >= budget.most; }

void give_up_for_lack_of_progress(Action& a, const Budget& budget) {
  a.kind = Kind::give_up;
  a.reason += fmt::format("; {} restart{} without a training step in between, and no more are allowed (max_restarts)", budget.used,
                          budget.used == 1 ? "" : "s");
}

// A restart, where the budget allows one; `status` is what the run ends with where it does not.
Action restart(const Budget& budget, std::string cause, std::string node, std::string reason, int status,
               std::string evidence = {}) {
  Action a;
  a.kind = Kind::restart;
  a.wait_ms = pause_before_restart(budget.used, budget.seed);
  a.cause = std::move(cause);
  a.node = std::move(node);
  a.evidence = evidence.empty() ? reason : std::move(evidence);
  a.reason = std::move(reason);
  a.exit_status = status;
  if (is_spent(budget)) give_up_for_lack_of_progress(a, budget);
  return a;
}

// The job leaves the nodes of `exclude` for others, where it may.
Action requeue_elsewhere(const JobState& job, const Budget& budget, Action a) {
  a.exit_status = exit_status::requeue;
  a.wait_ms = 0;
  if (is_spent(budget)) give_up_for_lack_of_progress(a, budget);
  else a.kind = job.requeues ? Kind::requeue : Kind::give_up;
  return a;
}

// The first of the smaller sizes that `good` nodes are enough for; 0 where there is none.
int smaller_size(const JobState& job, int good) {
  const auto at = std::find_if(job.fits.begin(), job.fits.end(), [&](int n) { return n <= good; });
  return at == job.fits.end() ? 0 : *at;
}

bool of_launch(const std::string& node, const JobState& job) {
  return std::find(job.nodes.begin(), job.nodes.end(), node) != job.nodes.end();
}

std::optional<Action> hurt_nodes(const Evidence& evidence, const JobState& job, const Budget& budget) {
  std::vector<std::string> nodes;
  const Incident* first = nullptr;
  std::string reason;
  for (const Incident& i : evidence.incidents) {
    if (!blames_node(i) || is_straggler(i) || !of_launch(i.node, job) || std::find(nodes.begin(), nodes.end(), i.node) != nodes.end()) continue;
    if (first == nullptr) first = &i;
    reason += (nodes.empty() ? "" : "; ") + describe(i);
    nodes.push_back(i.node);
  }
  if (first == nullptr) return std::nullopt;
  Action a = restart(budget, first->klass, first->node, reason, exit_status::peer_lost, first->evidence);
  a.exclude = nodes;
  const int lost = static_cast<int>(nodes.size());
  if (a.kind != Kind::restart || lost <= job.spares) return a;
  a.nodes = smaller_size(job, static_cast<int>(job.nodes.size()) + job.spares - lost);
  if (a.nodes > 0) a.kind = Kind::smaller;
  // Without either, the launch that follows finds too few nodes, once it is sure that none of them comes back.
  return a;
}

// What can wait for a checkpoint: a slow node, for which there is a spare, and a failure that is only foretold.
std::optional<Action> doubtful_nodes(const Evidence& evidence, const JobState& job, const Budget& budget) {
  for (const Incident& i : evidence.incidents) {
    const bool slow = is_straggler(i), foretold = i.action == "checkpoint";
    if ((!slow && !foretold) || !of_launch(i.node, job) || (slow && job.spares < 1)) continue;
    if (job.checkpoint > i.checkpoint) {
      if (!slow) continue;
      Action a = restart(budget, "straggler", i.node, describe(i), exit_status::peer_lost, i.evidence);
      a.exclude = {i.node};
      return a;
    }
    if (job.asked_to_save) continue;
    Action a;
    a.kind = Kind::checkpoint;
    a.cause = slow ? "straggler" : i.klass;
    a.node = i.node;
    a.reason = describe(i);
    return a;
  }
  return std::nullopt;
}

// The ranks have saved and ask for a requeue.
Action saved(const JobState& job, const Budget& budget) {
  Action a;
  a.cause = "requeue";
  a.reason = "the ranks have saved, and ask for a requeue";
  a = requeue_elsewhere(job, budget, std::move(a));
  // Where the job is not to be requeued, its end is no failure of anybody's.
  if (a.kind == Kind::give_up && !is_spent(budget)) a.kind = Kind::requeue;
  return a;
}

std::optional<Action> stuck_ranks(const Evidence& evidence, const JobState&, const Budget& budget) {
  if (!evidence.hangs.empty()) {
    const Hang& h = evidence.hangs.front();
    return restart(budget, "hang", h.node, describe(h), exit_status::peer_lost);
  }
  for (const Incident& i : evidence.incidents)
    if (i.klass == "app" && i.action == "restart")
      return restart(budget, "hang", i.node, describe(i), exit_status::peer_lost, i.evidence);
  return std::nullopt;
}

// All ranks have ended, as far as agents and srun tell.
bool over(const Evidence& evidence, const JobState& job) {
  return evidence.srun_status.has_value() || static_cast<int>(evidence.exits.size()) >= job.ranks;
}

// 76 names no cause of its own, nor does an end that nobody saw: any other bad end among the ranks explains them.
bool explains_nothing(const RankExit& e) {
  const ExitKind kind = kind_of(ending(e.wait_status));
  return kind == ExitKind::peer_lost || kind == ExitKind::unknown;
}

const RankExit* cause_among(const std::vector<RankExit>& exits) {
  const RankExit* first = nullptr;
  for (const RankExit& e : exits) {
    const ExitKind kind = kind_of(ending(e.wait_status));
    if (kind == ExitKind::user_error) return &e;
    if (kind == ExitKind::success || kind == ExitKind::requeue) continue;
    if (first == nullptr || (explains_nothing(*first) && !explains_nothing(e) && kind != ExitKind::maybe_user_error))
      first = &e;
  }
  return first;
}

// Only others send these.
bool is_from_outside(int signal) { return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGXCPU; }

// The program's own doing, again and again at the same step.
bool is_repeated(const RankExit& bad, int64_t step, const History& history) {
  constexpr size_t enough = 2;  // times before
  const Ending how = ending(bad.wait_status);
  if (is_from_outside(how.signal) || history.size() < enough) return false;
  const auto same = [&](const End& e) { return e.wait_status == bad.wait_status && e.step == step; };
  return std::all_of(history.end() - enough, history.end(), same);
}

std::optional<Action> ended_ranks(const Evidence& evidence, const JobState& job, const Budget& budget, const History& history) {
  const RankExit* bad = cause_among(evidence.exits);
  if (bad == nullptr) {
    const bool asks = std::any_of(evidence.exits.begin(), evidence.exits.end(),
                                  [](const RankExit& e) { return kind_of(ending(e.wait_status)) == ExitKind::requeue; });
    if (asks) return over(evidence, job) ? saved(job, budget) : Action();
    // Slurm may fail to book the end of a step whose ranks are all done.
    if (evidence.srun_status && static_cast<int>(evidence.exits.size()) >= job.ranks) return end(Kind::finished, 0);
    return std::nullopt;
  }
  const int status = shell_status(bad->wait_status);
  const auto again = [&](int patience, const char* cause, const std::string& node, const std::string& reason) {
    if (evidence.waited_ms < patience) return settle(patience - evidence.waited_ms);
    if (std::string_view(cause) == "rank" && is_repeated(*bad, job.step, history))
      return give_up("user", fmt::format("{}, for the third time at the same step (after {}), and no hardware fault explains it; a restart would not help",
                                         describe(*bad), std::max<int64_t>(0, job.step)),
                     status, bad->node);
    return restart(budget, cause, node, reason, status);
  };
  const auto waited = [&](int ms) { return evidence.waited_ms >= ms; };
  switch (kind_of(ending(bad->wait_status))) {
    case ExitKind::user_error:
      return give_up("user", describe(*bad) + "; a restart would not help", status, bad->node);
    case ExitKind::maybe_user_error:
      if (!waited(after_doubtful_exit)) return settle(after_doubtful_exit - evidence.waited_ms);
      return give_up("user", describe(*bad) + ", and no hardware fault explains it; a restart would not help", status,
                     bad->node);
    case ExitKind::signal:
      return again(after_signal, "rank", bad->node, describe(*bad));
    case ExitKind::internal:
      return again(after_internal, "rank", bad->node, describe(*bad));
    case ExitKind::unknown:
      return again(after_peer_lost, "rank", bad->node, describe(*bad));
    default:
      return again(after_peer_lost, "peer", "", describe(*bad) + "; no cause was found");
  }
}

// srun has ended, and no rank's end explains how.
Action ended_srun(const Evidence& evidence, const JobState& job, const Budget& budget, const History& history) {
  const int status = *evidence.srun_status;
  const auto words = [&](const char* otherwise) { return evidence.srun_message.empty() ? otherwise : evidence.srun_message; };
  switch (evidence.srun_failure) {
    case SrunFailure::controller:
      return hold(patience_with_controller, "Slurm's controller does not answer");
    case SrunFailure::not_now:
      return hold(patience_with_room, fmt::format("Slurm cannot start the step yet: {}", words("see above")));
    case SrunFailure::refused:
      return give_up("slurm", fmt::format("Slurm refused the step: {}", words("see above")), status);
    case SrunFailure::launch: {
      if (evidence.waited_ms < after_launch_failure) return settle(after_launch_failure - evidence.waited_ms);
      Action a = restart(budget, "launch", evidence.unlaunched.empty() ? "" : evidence.unlaunched.front(),
                         fmt::format("the step could not be launched: {}", words("see above")), status);
      a.exclude = evidence.unlaunched;
      return a;
    }
    case SrunFailure::none:
      break;
  }
  if (status == 0) return end(Kind::finished, 0);
  if (evidence.waited_ms < after_silent_end && static_cast<int>(evidence.exits.size()) < job.ranks)
    return settle(after_silent_end - evidence.waited_ms);
  Evidence as_rank = evidence;
  as_rank.exits = {RankExit{-1, "", wait_status_of(ending_of_shell_status(status))}};
  return ended_ranks(as_rank, job, budget, history).value_or(end(Kind::finished, status));
}

}  // namespace

bool blames_node(const Incident& incident) {
  return !incident.node.empty() && incident.klass != "app" && incident.klass != "peer" &&
         (incident.action == "restart" || incident.action == "drain");
}

bool is_straggler(const Incident& incident) {
  return blames_node(incident) && incident.action == "restart" && incident.code == "straggler";
}

std::optional<End> end_of(const Evidence& evidence, std::optional<int64_t> step) {
  const RankExit* bad = cause_among(evidence.exits);
  if (bad == nullptr || std::any_of(evidence.incidents.begin(), evidence.incidents.end(), blames_node)) return std::nullopt;
  return End{bad->wait_status, step.value_or(-1)};
}

Action decide(const Evidence& evidence, const JobState& job, const Budget& budget, const History& history) {
  if (job.stopping) {
    if (!evidence.srun_status) return {};
    for (const RankExit& e : evidence.exits)
      if (kind_of(ending(e.wait_status)) == ExitKind::requeue) return saved(job, budget);
    if (*evidence.srun_status == exit_status::requeue) return saved(job, budget);
    return end(Kind::finished, *evidence.srun_status);
  }
  if (evidence.srun_status == 0) return end(Kind::finished, 0);
  if (auto a = hurt_nodes(evidence, job, budget)) return *a;
  if (auto a = ended_ranks(evidence, job, budget, history)) return *a;
  if (auto a = stuck_ranks(evidence, job, budget)) return *a;
  if (evidence.srun_status) return ended_srun(evidence, job, budget, history);
  if (auto a = doubtful_nodes(evidence, job, budget)) return *a;
  return {};
}

Action decide(const Shortage& shortage, const JobState& job, const Budget& budget) {
  if (!shortage.hopeless && shortage.waited * 1000 < patience_with_nodes) {
    return hold(patience_with_nodes, fmt::format("waiting up to {} s for nodes to come back ({})", patience_with_nodes / 1000, shortage.missing));
  }
  Action a;
  a.cause = "nodes";
  a.exclude = shortage.bad;
  a.reason = fmt::format("too few nodes are left: {} are needed, and these cannot be used: {}", job.nodes.size(), shortage.missing);
  a.evidence = shortage.missing;
  a.nodes = smaller_size(job, shortage.good);
  if (a.nodes == 0) return requeue_elsewhere(job, budget, std::move(a));
  a.kind = Kind::smaller;
  return a;
}

}  // namespace mm::recovery
