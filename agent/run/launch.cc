// SPDX-License-Identifier: Apache-2.0
#include "agent/run/launch.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "agent/recovery/exits.h"

namespace mm::run {
namespace {

// "7" and "1234.7" -> 7
std::optional<int64_t> step_number(const std::string& text) {
  const size_t dot = text.rfind('.');
  const std::string last = dot == std::string::npos ? text : text.substr(dot + 1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(last.data(), last.data() + last.size(), value);
  if (error != std::errc() || end != last.data() + last.size()) return std::nullopt;
  return value;
}

double real(const KeyValues& values, const char* key, double otherwise) {
  const std::string text = get(values, key);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return text.empty() || *end != '\0' ? otherwise : value;
}

}  // namespace

recovery::Incident incident_of(const KeyValues& event) {
  return {get(event, "ORIGIN") + "/" + get(event, "ID"),
          get(event, "CLASS"),
          get(event, "NODE"),
          get(event, "DEVICE"),
          get(event, "SEVERITY"),
          get(event, "ACTION"),
          get(event, "EVIDENCE"),
          static_cast<int>(get_int(event, "RANK", -1)),
          get(event, "CODE")};
}

Launch::Launch(std::vector<std::string> nodes, int ranks, int64_t last_step)
    : nodes_(std::move(nodes)), ranks_(ranks), last_step_(last_step) {}

std::string Launch::step_id() const {
  return step_id_ ? std::to_string(*step_id_) : std::string();
}

void Launch::tell_step(const std::string& step_id) {
  if (const auto number = step_number(step_id)) step_id_ = *number, told_ = true;
}

bool Launch::is_ours(const std::string& step_id) {
  const auto number = step_number(step_id);
  if (!number || *number <= last_step_) return false;
  if (!step_id_) step_id_ = number;
  return *number == *step_id_;
}

void Launch::symptom(double when, Instant now) {
  if (!symptom_at_) symptom_at_ = now.steady;
  fault_time_ = std::min(fault_time_.value_or(when), std::min(when, now.wall));
}

void Launch::add_exit(const recovery::RankExit& exit, double when, Instant now) {
  const auto known =
      std::find_if(evidence_.exits.begin(), evidence_.exits.end(), [&](const auto& e) { return e.rank == exit.rank; });
  if (known != evidence_.exits.end()) {
    if (known->wait_status < 0) *known = exit;  // now somebody has seen how it ended
    return;
  }
  evidence_.exits.push_back(exit);
  if (recovery::kind_of(recovery::ending(exit.wait_status)) != recovery::ExitKind::success) symptom(when, now);
}

void Launch::take(const KeyValues& event, Instant now) {
  if (stopped_) return;
  const std::string kind = get(event, "EVENT"), node = get(event, "NODE");
  const double when = real(event, "TIME", now.wall);
  const int rank = static_cast<int>(get_int(event, "RANK", -1));
  if (kind == "exit") {
    if (is_ours(get(event, "STEP"))) add_exit({rank, node, static_cast<int>(get_int(event, "STATUS", 0))}, when, now);
  } else if (kind == "hang") {
    if (!is_ours(get(event, "STEP_ID"))) return;
    const double seconds = real(event, "SECONDS", 0);
    evidence_.hangs.push_back({rank, node, seconds});
    symptom(when - seconds, now);
  } else if (kind == "incident") {
    recovery::Incident incident = incident_of(event);
    incident.checkpoint = checkpoint_;
    const bool about_rank = incident.klass == "app" && incident.action == "restart" && is_ours(get(event, "STEP"));
    const bool waits = recovery::is_straggler(incident) || incident.action == "checkpoint";  // for a checkpoint: no fault yet
    const bool about_node =
        (recovery::blames_node(incident) || waits) && std::find(nodes_.begin(), nodes_.end(), node) != nodes_.end();
    if (!about_rank && !about_node) return;
    evidence_.incidents.push_back(incident);
    if (!waits) symptom(when, now);
  } else if (kind == "progress") {
    if (!is_ours(get(event, "STEP_ID"))) return;
    Progress p;
    if (event.contains("STEP")) p.step = get_int(event, "STEP", 0);
    p.trained = !get(event, "LOSS").empty();
    p.phase = get(event, "PHASE");
    progress_ = p;
    if (const int64_t newest = get_int(event, "CHECKPOINT", -1); newest > checkpoint_) {
      checkpoint_ = newest;
      asked_to_save_ = false;
    }
  }
}

void Launch::take(const SrunNews& news, Instant now) {
  if (stopped_) return;
  if (news.step && !told_) step_id_ = step_number(*news.step);
  for (const recovery::RankExit& exit : news.exits) add_exit(exit, now.wall, now);
  if (news.failure == recovery::SrunFailure::none || evidence_.srun_failure == recovery::SrunFailure::controller) return;
  evidence_.srun_failure = news.failure;
  evidence_.srun_message = news.message;
  if (!news.node.empty()) evidence_.unlaunched.push_back(news.node);
}

void Launch::srun_ended(int shell_status, Instant now) {
  evidence_.srun_status = shell_status;
  if (shell_status != 0) symptom(now.wall, now);
}

const recovery::Evidence& Launch::evidence(Instant now) {
  evidence_.waited_ms = symptom_at_ ? static_cast<int>((now.steady - *symptom_at_) * 1000) : 0;
  return evidence_;
}

std::optional<Progress> Launch::take_progress() {
  return std::exchange(progress_, std::nullopt);
}

}  // namespace mm::run
