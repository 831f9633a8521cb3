// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/neighbours.h"

#include <fmt/format.h>

#include "agent/peers/neighbours.h"
#include "agent/probes/port.h"
#include "common/log.h"

namespace mm::agent {
namespace {

constexpr milliseconds lateness_limit{1000};
constexpr milliseconds connect_deadline{300};
constexpr milliseconds controller_period{500};

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

Neighbours::Neighbours(Context& context, Events& events, Ranks& ranks, Jobs& jobs)
    : c_(context), events_(events), ranks_(ranks), jobs_(jobs), beat_timer_(context.loop) {}

void Neighbours::registry_changed() {
  std::set<std::string> peers;
  for (const auto& [id, job] : c_.registry)
    for (const std::string& p : neighbours(job.nodes, c_.node)) peers.insert(p);
  c_.contacts.set_peers(peers, Clock::now());
  std::erase_if(c_.condemned, [&](const auto& entry) {
    for (const auto& [id, job] : c_.registry)
      if (job.has_node(entry.first)) return false;
    return true;
  });
  if (peers.empty()) {
    beat_timer_.cancel();
    beating_ = false;
    look_again_.clear();
    alerted_.clear();
    isolated_.clear();
    fenced_.clear();
  } else if (!beating_) {
    beating_ = true;
    last_tick_ = Clock::now();
    beat_timer_.repeat(milliseconds(c_.site.heartbeat_ms), [this] { tick(); });
  }
}

void Neighbours::tick() {
  const auto now = Clock::now();
  if (now - last_tick_ > milliseconds(c_.site.heartbeat_ms) + lateness_limit) {
    log::warn("this agent was late by {:.1f} s: nobody is judged for {} ms", seconds(now - last_tick_), c_.site.silent_ms);
    c_.contacts.forgive(now);
    c_.judge_after = now + milliseconds(c_.site.silent_ms);
  }
  last_tick_ = now;
  for (const auto& [peer, time] : c_.contacts.all()) {
    std::string jobs;
    for (const auto& [id, job] : c_.registry)
      if (job.has_node(peer) && !job.batch_node.empty()) jobs += fmt::format("{}{}.{}", jobs.empty() ? "" : ",", id, job.restarts);
    c_.mesh.tell(peer, {{"VERB", "beat"}, {"JOBS", jobs}, {"TIME", fmt::format("{:.6f}", wall_time())}});
  }
  if (!c_.mesh.is_open() || !c_.may_judge()) return;
  const auto peers = c_.contacts.all();
  for (const auto& [peer, time] : peers)
    if (!hears(peer) && c_.is_live(peer) && now >= look_again_[peer]) look_at(peer);
  fence(now);
}

bool Neighbours::hears(const std::string& peer) const {
  return c_.contacts.age(peer, Clock::now()) * 1000 < c_.site.silent_ms;
}

void Neighbours::heard(const std::string& from) {
  c_.contacts.heard(from, Clock::now());
  look_again_.erase(from);
  if (alerted_.erase(from) > 0) events_.note({{"EVENT", "peer"}, {"NODE", from}, {"EVIDENCE", fmt::format("the agent of {} is heard again", from)}});
  if (c_.condemned.erase(from) > 0)
    events_.note({{"EVENT", "peer"}, {"NODE", from}, {"EVIDENCE", fmt::format("{} was silent and is heard again; it stays drained", from)}});
}

void Neighbours::beat_received(const std::string& from, const KeyValues& message) { jobs_.heard_of(from, get(message, "JOBS")); }

KeyValues Neighbours::age_of(const std::string& node) const {
  if (!c_.contacts.knows(node) || !c_.may_judge()) return {{"OK", "0"}, {"ERROR", node + " is not watched here"}};
  return {{"OK", "1"}, {"AGE_MS", std::to_string(static_cast<int64_t>(c_.contacts.age(node, Clock::now()) * 1000))}};
}

void Neighbours::incident_received(const Incident& incident) {
  if (incident.kind != "node" || incident.node == c_.node || hears(incident.node)) return;
  c_.condemned.emplace(incident.node, Condemned{incident.evidence.empty() ? "" : incident.evidence.front(), Clock::now()});
}

// Ranks without anyone who could tell whether they are still wanted.
void Neighbours::fence(Clock::time_point now) {
  bool alone = false;
  std::vector<std::string> returned;
  for (auto& [id, job] : c_.registry) {
    const auto majority = c_.contacts.last_majority(neighbours(job.nodes, c_.node), now);
    if (now - majority < milliseconds(c_.site.silent_ms)) {
      fenced_.erase(id);
      if (isolated_.erase(id) > 0) returned.push_back(id);
      continue;
    }
    alone = true;
    isolated_.insert(id);
    const auto last = std::max(majority, controller_reached_);
    if (now - last < milliseconds(c_.site.fence_ms) || !job.has_live_task() || !fenced_.insert(id).second) continue;
    const int killed = ranks_.kill_ranks(job);
    const std::string text = fmt::format("{} was cut off from slurmctld and from most nodes of job {} for {}: {} ranks killed", c_.node, id,
                                         seconds_text(seconds(now - last)), killed);
    log::error("{}", text);
    events_.publish(job, {{"EVENT", "fence"}, {"EVIDENCE", text}});
  }
  // Each try costs slurmctld a line in its log: while it answers, twice in fence_ms are enough.
  const auto period = now - controller_reached_ < milliseconds(c_.site.fence_ms) ? milliseconds(c_.site.fence_ms / 2) : controller_period;
  if (alone && now - controller_tried_ > period) try_controller();
  if (alone && now - controller_reached_ < controller_period && now - verified_alone_ > milliseconds(c_.site.fence_ms)) {
    verified_alone_ = now;
    for (const std::string& id : isolated_) jobs_.verify(id, true);
  }
  if (!returned.empty()) jobs_.verify_all();
}

void Neighbours::try_controller() {
  if (c_.slurm_config.controller.empty()) return;
  controller_tried_ = Clock::now();
  c_.loop.work(Loop::Pool::probe, [this, address = c_.slurm_config.controller, port = c_.slurm_config.controller_port]() -> Loop::Action {
    if (connect_to_port(address, port, connect_deadline) != PortAnswer::open) return {};
    return [this] { controller_reached_ = Clock::now(); };
  });
}

const Job* Neighbours::shared_job(const std::string& peer) const {
  for (const auto& [id, job] : c_.registry)
    if (job.has_node(peer) && job.has_node(c_.node)) return &job;
  return nullptr;
}

}  // namespace mm::agent
