// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/advice.h"

#include <fmt/format.h>

namespace mm::agent {
namespace {

constexpr milliseconds period{5000};
constexpr std::chrono::seconds level_pause{60}, save_pause{600};
constexpr int highest_level = 3;
constexpr const char* move_key = "relief/move";

}  // namespace

Advice::Advice(Context& context, Events& events, Desk& desk, Send send)
    : c_(context), events_(events), desk_(desk), send_(std::move(send)), timer_(context.loop) {}

void Advice::start() {
  timer_.repeat(period, [this] { look(Clock::now()); });
}

void Advice::tell(KeyValues message, const std::string& why) {
  message["WHY"] = why;
  const std::string packet = format_key_values(message);
  const auto listeners = listeners_;  // a send may end a client
  for (const auto& [client, job] : listeners) send_(client, packet);
  if (!listeners.empty())
    events_.note({{"EVENT", "advice"}, {"EVIDENCE", fmt::format("{} ranks of {} are asked to {}: {}", listeners.size(), c_.node,
                                                                get(message, "ADVICE") == "save" ? "save" : "need less, level " + get(message, "LEVEL"), why)}});
}

void Advice::listen(ClientId client, const std::string& job) {
  if (!listeners_.insert_or_assign(client, job).second) return;
  const auto end = ends_.find(job);
  const auto known = c_.registry.find(job);
  if (end != ends_.end() && known != c_.registry.end() && end->second.run == known->second.restarts) send_(client, end->second.packet);
}

void Advice::tell_job(const KeyValues& message) {
  const std::string job = get(message, "JOB");
  KeyValues advice;
  for (const char* key : {"ADVICE", "END", "WHY"})
    if (message.contains(key)) advice[key] = get(message, key);
  const std::string packet = format_key_values(advice);
  if (get(advice, "ADVICE") == "end") ends_[job] = {get_int(message, "RESTARTS", 0), packet};
  const auto listeners = listeners_;  // a send may end a client
  for (const auto& [client, of] : listeners)
    if (of == job) send_(client, packet);
}

void Advice::incident(const Incident& incident) {
  const auto now = Clock::now();
  if (incident.action != "checkpoint" || now < next_save_ || listeners_.empty()) return;
  next_save_ = now + save_pause;
  tell({{"ADVICE", "save"}}, incident.evidence.empty() ? incident.code : incident.evidence.front());
}

void Advice::look(Clock::time_point now) {
  const Desk::Open* shortage = nullptr;
  for (const char* key : {"host/pressure", "host/memory", "host/memory_high", "host/load"})
    if (const auto at = desk_.open().find(key); shortage == nullptr && at != desk_.open().end()) shortage = &at->second;
  if (shortage == nullptr) {
    level_ = 0;
    next_ = now;
    return desk_.over(move_key, "the node has enough again");
  }
  if (now < next_) return;
  next_ = now + level_pause;
  const std::string why = shortage->report.evidence.empty() ? shortage->report.code : shortage->report.evidence.front();
  if (level_ < highest_level) return tell({{"ADVICE", "shrink"}, {"LEVEL", std::to_string(++level_)}}, why);
  bool may_move = false;
  for (const auto& [id, job] : c_.registry) {
    if (!job.has_live_task()) continue;
    if (job.spares == 0) return;
    may_move = true;
  }
  if (!may_move || desk_.is_open(move_key)) return;
  Report r = shortage->report;
  r.code = "overloaded";
  r.severity = Severity::error;
  r.action = Action::restart;
  r.evidence.push_back("ranks that were asked to need less did not help");
  desk_.report(move_key, r);
}

}  // namespace mm::agent
