// SPDX-License-Identifier: Apache-2.0
#include "agent/recovery/policy.h"

#include <fmt/format.h>

#include <algorithm>

#include "agent/recovery/describe.h"
#include "agent/recovery/exits.h"
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

Action wait_for_slurm(int patience, std::string why) {
  Action a;
  a.kind = Kind::wait_for_slurm;
  a.wait_ms = patience;
  a.reason = std::move(why);
  return a;
}

// A restart, where the budget allows one; `status` is what the run ends with where it does not.
Action restart(const Budget& budget, std::string cause, std::string node, std::string reason, int status,
               std::string evidence = {}) {
  Action a;
  a.kind = Kind::restart;
  a.cause = std::move(cause);
  a.node = std::move(node);
  a.evidence = evidence.empty() ? reason : std::move(evidence);
  a.reason = std::move(reason);
  a.exit_status = status;
  if (budget.used >= budget.most) {
    a.kind = Kind::give_up;
    a.reason += fmt::format("; {} restart{} without a training step in between, and no more are allowed (max_restarts)",
                            budget.used, budget.used == 1 ? "" : "s");
  }
  return a;
}

bool of_launch(const std::string& node, const JobState& job) {
  return std::find(job.nodes.begin(), job.nodes.end(), node) != job.nodes.end();
}

std::optional<Action> hurt_nodes(const Evidence& evidence, const JobState& job, const Budget& budget) {
  std::vector<std::string> nodes;
  const Incident* first = nullptr;
  std::string reason;
  for (const Incident& i : evidence.incidents) {
    if (!blames_node(i) || !of_launch(i.node, job) || std::find(nodes.begin(), nodes.end(), i.node) != nodes.end()) continue;
    if (first == nullptr) first = &i;
    reason += (nodes.empty() ? "" : "; ") + describe(i);
    nodes.push_back(i.node);
  }
  if (first == nullptr) return std::nullopt;
  Action a = restart(budget, first->klass, first->node, reason, exit_status::peer_lost, first->evidence);
  a.exclude = nodes;
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

std::optional<Action> ended_ranks(const Evidence& evidence, const JobState& job, const Budget& budget) {
  const RankExit* bad = cause_among(evidence.exits);
  if (bad == nullptr) {
    const bool asks = std::any_of(evidence.exits.begin(), evidence.exits.end(),
                                  [](const RankExit& e) { return kind_of(ending(e.wait_status)) == ExitKind::requeue; });
    if (asks) return over(evidence, job) ? end(Kind::requeue, exit_status::requeue) : Action();
    // Slurm may fail to book the end of a step whose ranks are all done.
    if (evidence.srun_status && static_cast<int>(evidence.exits.size()) >= job.ranks) return end(Kind::finished, 0);
    return std::nullopt;
  }
  const int status = shell_status(bad->wait_status);
  const auto waited = [&](int ms) { return evidence.waited_ms >= ms; };
  switch (kind_of(ending(bad->wait_status))) {
    case ExitKind::user_error:
      return give_up("user", describe(*bad) + "; a restart would not help", status, bad->node);
    case ExitKind::maybe_user_error:
      if (!waited(after_doubtful_exit)) return settle(after_doubtful_exit - evidence.waited_ms);
      return give_up("user", describe(*bad) + ", and no hardware fault explains it; a restart would not help", status,
                     bad->node);
    case ExitKind::signal:
      if (!waited(after_signal)) return settle(after_signal - evidence.waited_ms);
      return restart(budget, "rank", bad->node, describe(*bad), status);
    case ExitKind::internal:
      if (!waited(after_internal)) return settle(after_internal - evidence.waited_ms);
      return restart(budget, "rank", bad->node, describe(*bad), status);
    default:
      if (!waited(after_peer_lost)) return settle(after_peer_lost - evidence.waited_ms);
      if (kind_of(ending(bad->wait_status)) == ExitKind::unknown)
        return restart(budget, "rank", bad->node, describe(*bad), status);
      return restart(budget, "peer", "", describe(*bad) + "; no cause was found", status);
  }
}

// srun has ended, and no rank's end explains how.
Action ended_srun(const Evidence& evidence, const JobState& job, const Budget& budget) {
  const int status = *evidence.srun_status;
  const auto words = [&](const char* otherwise) { return evidence.srun_message.empty() ? otherwise : evidence.srun_message; };
  switch (evidence.srun_failure) {
    case SrunFailure::controller:
      return wait_for_slurm(patience_with_controller, "Slurm's controller does not answer");
    case SrunFailure::not_now:
      return wait_for_slurm(patience_with_room, fmt::format("Slurm cannot start the step yet: {}", words("see above")));
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
  return ended_ranks(as_rank, job, budget).value_or(end(Kind::finished, status));
}

}  // namespace

bool blames_node(const Incident& incident) {
  return !incident.node.empty() && incident.klass != "app" && incident.klass != "peer" &&
         (incident.action == "restart" || incident.action == "drain");
}

Action decide(const Evidence& evidence, const JobState& job, const Budget& budget) {
  if (job.stopping) {
    if (!evidence.srun_status) return {};
    for (const RankExit& e : evidence.exits)
      if (kind_of(ending(e.wait_status)) == ExitKind::requeue) return end(Kind::requeue, exit_status::requeue);
    if (*evidence.srun_status == exit_status::requeue) return end(Kind::requeue, exit_status::requeue);
    return end(Kind::finished, *evidence.srun_status);
  }
  if (evidence.srun_status == 0) return end(Kind::finished, 0);
  if (auto a = hurt_nodes(evidence, job, budget)) return *a;
  if (auto a = ended_ranks(evidence, job, budget)) return *a;
  if (auto a = stuck_ranks(evidence, job, budget)) return *a;
  if (evidence.srun_status) return ended_srun(evidence, job, budget);
  return {};
}

}  // namespace mm::recovery
