// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/desk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "agent/incidents/incident_json.h"
#include "common/error.h"
#include "common/log.h"

namespace mm::agent {
namespace {

constexpr milliseconds drain_retry{2000}, brake_deadline{1500}, brake_retry{10000};
constexpr std::chrono::seconds permit_life{4};  // until Slurm shows the drain
constexpr double brake_window = 3600;
constexpr size_t most_keepers = 4;   // agents that are tried as keepers of the brake
constexpr size_t longest_quote = 300;

bool is_power_of_ten(int64_t n) {
  while (n >= 10 && n % 10 == 0) n /= 10;
  return n == 1;
}

template <typename Enum>
Enum parse(std::string_view text, Enum last) {
  for (int i = 0; i <= static_cast<int>(last); ++i)
    if (name(static_cast<Enum>(i)) == text) return static_cast<Enum>(i);
  return Enum{};
}

}  // namespace

Desk::Desk(Context& context, Events& events) : c_(context), events_(events) {}

Incident Desk::incident_of(const Open& open) const {
  Incident out;
  out.id = open.id;
  out.origin = out.node = c_.node;
  out.kind = std::string(name(open.report.part));
  out.scope = open.report.scope;
  out.code = open.report.code;
  out.device = open.report.device;
  out.severity = std::string(name(open.report.severity));
  out.action = std::string(name(open.report.action));
  out.time = open.time;
  out.count = open.report.count;
  out.evidence = open.report.evidence;
  out.job = open.report.job;
  return out;
}

int64_t Desk::report(const std::string& key, const Report& report) {
  const auto at = open_.find(key);
  if (at == open_.end()) {
    Open open;
    open.report = report;
    open.time = wall_time();
    if (report.action == Action::ignore && report.part != Part::app) {
      if (kept_) kept_(incident_of(open));
      return 0;
    }
    open.id = c_.journal.next_incident();
    const Incident incident = incident_of(open);
    open_.emplace(key, std::move(open));
    if (kept_) kept_(incident);
    tell(incident);
    c_.registry_changed();
    if (report.action == Action::drain) drain(key, 0);
    return incident.id;
  }
  Open& open = at->second;
  const bool worse = report.action > open.report.action || report.severity > open.report.severity;
  const bool more = report.count > open.report.count && is_power_of_ten(report.count);
  const bool drains = report.action == Action::drain && !open.draining && !open.drained;
  open.report = report;
  if (kept_ && (worse || more)) kept_(incident_of(open));
  if (worse) {
    tell(incident_of(open));
    c_.registry_changed();
  } else if (more) {
    events_.note(message_from_incident(incident_of(open)));
  }
  if (drains) drain(key, 0);
  return open.id;
}

void Desk::over(const std::string& key, const std::string& words) {
  const auto at = open_.find(key);
  if (at == open_.end()) return;
  const Open open = std::move(at->second);
  open_.erase(at);
  const std::string text = words.empty() ? "is over" : words;
  events_.note({{"EVENT", "over"}, {"ID", std::to_string(open.id)}, {"CLASS", std::string(name(open.report.part))}, {"DEVICE", open.report.device},
                {"EVIDENCE", fmt::format("incident {}: {}{}", open.id, text, open.report.action == Action::drain ? "; the node stays drained" : "")}});
  c_.registry_changed();
}

std::vector<std::string> Desk::problems() const {
  std::vector<std::string> out;
  for (const auto& [key, open] : open_) {
    const Report& r = open.report;
    // Training links are looked at where they are needed, in daemon/health.cc.
    if (r.action < Action::restart || r.part == Part::app || key.starts_with("nic/")) continue;
    out.push_back(fmt::format("{}{}{} {}: {}", name(r.part), r.device.empty() ? "" : " ", r.device, r.code,
                              r.evidence.empty() ? "" : r.evidence.front().substr(0, longest_quote)));
  }
  return out;
}

std::optional<std::string> Desk::doubt() const {
  for (const auto& [key, open] : open_)
    if (open.report.action == Action::checkpoint) return open.report.evidence.empty() ? open.report.code : open.report.evidence.front().substr(0, longest_quote);
  return std::nullopt;
}

bool Desk::begin_clear(std::function<void()> ready) {
  if (std::exchange(clearing_, true)) return false;
  for (const auto& [key, open] : open_) to_clear_[key] = open.id;
  if (drains_under_way_ == 0) ready();
  else ready_to_clear_ = std::move(ready);
  return true;
}

void Desk::end_clear(bool done) {
  clearing_ = false;
  if (done) std::erase_if(open_, [&](const auto& o) { return to_clear_.contains(o.first) && to_clear_.at(o.first) == o.second.id; });
  to_clear_.clear();
  for (const std::string& key : std::exchange(drains_put_off_, {})) drain_now(key);
}

void Desk::drain_ended() {
  if (--drains_under_way_ == 0 && ready_to_clear_) std::exchange(ready_to_clear_, nullptr)();
}

void Desk::resume() {
  std::vector<std::string> keys;
  for (const auto& [key, open] : open_)
    if (open.report.action == Action::drain && !open.draining && !open.drained) keys.push_back(key);
  for (const std::string& key : keys) drain(key, 0);
}

void Desk::tell(const Incident& incident) {
  if (const auto job = c_.registry.find(incident.job); job != c_.registry.end()) return events_.raise_for_job(job->second, incident);
  Incident of_node = incident;
  of_node.job.clear();
  events_.raise(of_node);
}

// The keeper of the brake: the first node of the book whose agent answers; where none does, this one.
void Desk::drain(const std::string& key, size_t keeper) {
  const auto at = open_.find(key);
  if (at == open_.end()) return;
  // Before Slurm has told who the nodes are there is nobody to ask; resume() comes back to it.
  if (!c_.mesh.is_open()) return;
  at->second.draining = true;
  const auto decided = [this, key](const std::string& refusal) {
    if (refusal.empty()) drain_now(key);
    else drain_later(key, refusal);
  };
  std::string node = c_.node;
  if (keeper < most_keepers && keeper < c_.mesh.book().size()) node = std::next(c_.mesh.book().begin(), static_cast<std::ptrdiff_t>(keeper))->first;
  if (node == c_.node) return ask_brake(node, decided);
  c_.mesh.ask(node, {{"VERB", "permit"}, {"NODE", c_.node}}, brake_deadline, [this, key, keeper, decided](const std::optional<KeyValues>& answer) {
    if (!answer) return drain(key, keeper + 1);
    decided(get(*answer, "OK") == "1" ? "" : get(*answer, "ERROR", "refused"));
  });
}

void Desk::ask_brake(const std::string& node, std::function<void(const std::string&)> done) {
  c_.loop.work(Loop::Pool::slurm, [this, node, done]() -> Loop::Action {
    std::vector<NodeRecord> records;
    try {
      records = c_.slurm.nodes();
    } catch (const std::exception& e) {
      // Without Slurm there is nothing to drain with either: the drain itself will wait for it.
      log::debug("{}", e.what());
    }
    return [this, node, done, records] {
      const auto now = Clock::now();
      std::erase_if(permits_, [&](const auto& p) { return now - p.second > permit_life; });
      std::set<std::string> drained;
      for (const auto& [n, time] : permits_) drained.insert(n);
      for (const NodeRecord& r : records)
        if (r.reason.starts_with(reason_mark) && wall_time() - r.reason_time < brake_window) drained.insert(r.name);
      drained.erase(node);
      const double most = std::max(1.0, std::ceil(c_.site.drain_share * static_cast<double>(records.size())));
      if (static_cast<double>(drained.size()) >= most)
        return done(fmt::format("brake: {} of {} nodes were drained by agents within the hour, and drain_share allows {}", drained.size(), records.size(), most));
      permits_[node] = now;
      done("");
    };
  });
}

// Tried until it works. An attempt after the first needs the fault to be there still: slurmctld may have been out of reach for long.
void Desk::drain_now(const std::string& key) {
  const auto at = open_.find(key);
  if (at == open_.end()) return;
  if (clearing_) return drains_put_off_.push_back(key);
  ++drains_under_way_;
  const Report& r = at->second.report;
  std::string quote = r.evidence.empty() ? r.code : r.evidence.front().substr(0, longest_quote);
  const std::string subject = fmt::format("{} {}", name(r.part), r.device);
  if (!quote.starts_with(subject)) quote = fmt::format("{}{}{}", name(r.part), r.device.empty() ? " " : " " + r.device + " ", quote);
  c_.loop.work(Loop::Pool::slurm, [this, key, reason = drain_reason(quote, at->second.id)]() -> Loop::Action {
    try {
      const std::string done = c_.slurm.drain(c_.node, reason);
      return [this, key, reason, done] {
        if (const auto open = open_.find(key); open != open_.end()) open->second.drained = true;
        c_.registry_changed();
        log::info("node {}: {}: {}", c_.node, done, reason);
        events_.note({{"EVENT", "action"}, {"EVIDENCE", fmt::format("node {}: {}", c_.node, done)}});
        drain_ended();
      };
    } catch (const std::exception& e) {
      return [this, key, why = std::string(e.what())] {
        log::warn("{}", why);
        c_.loop.after(drain_retry, [this, key] { drain_now(key); });
        drain_ended();
      };
    }
  });
}

void Desk::drain_later(const std::string& key, const std::string& why) {
  log::warn("node {} is not drained: {}", c_.node, why);
  events_.note({{"EVENT", "action"}, {"EVIDENCE", fmt::format("node {} is not drained: {}", c_.node, why)}});
  c_.loop.after(brake_retry, [this, key] { drain(key, 0); });
}

std::string Desk::state_to_text() const {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const auto& [key, open] : open_) {
    nlohmann::ordered_json one = json_from_incident(incident_of(open));
    one["key"] = key;
    one["drained"] = open.drained;
    out.push_back(std::move(one));
  }
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void Desk::state_from_text(const std::string& text) {
  for (const auto& saved : nlohmann::ordered_json::parse(text)) {
    const Incident i = incident_from_json(saved);
    Open o;
    o.id = i.id;
    o.time = i.time;
    o.drained = saved.at("drained");
    o.report = {parse(i.kind, Part::peer), i.code, i.device, i.scope, parse(i.severity, Severity::fatal), parse(i.action, Action::drain), i.count, i.evidence, i.job};
    open_[saved.at("key").get<std::string>()] = std::move(o);
  }
}

}  // namespace mm::agent
