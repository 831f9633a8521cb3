// SPDX-License-Identifier: Apache-2.0
// The part of Neighbours that turns silence into a verdict; see daemon/neighbours.h for the rules.
#include <fmt/format.h>

#include <algorithm>

#include "agent/daemon/neighbours.h"
#include "agent/peers/neighbours.h"
#include "agent/probes/port.h"
#include "common/hostlist.h"
#include "common/log.h"

namespace mm::agent {
namespace {

constexpr milliseconds connect_deadline{300};
constexpr milliseconds question_deadline{300};
constexpr milliseconds judge_deadline{900};
constexpr milliseconds partition_pause{500};
constexpr milliseconds alert_pause{2000};
constexpr milliseconds slurm_retry{1000};
constexpr size_t most_asked = 8;

}  // namespace

struct Neighbours::Inquiry {
  std::string peer;
  std::vector<std::string> job_nodes;
  std::map<std::string, double> agree;  // monitors that do not hear it: for how long
  std::vector<std::string> hear_it;
  uint16_t port = 0;
  PortAnswer answer = PortAnswer::silent;
  int parts = 2;
};

// Asks the others and tries the port, at the same time.
void Neighbours::look_at(const std::string& peer) {
  const Job* job = shared_job(peer);
  const auto place = c_.mesh.book().find(peer);
  if (job == nullptr || place == c_.mesh.book().end()) return;
  look_again_[peer] = Clock::time_point::max();
  auto inquiry = std::make_shared<Inquiry>();
  inquiry->peer = peer;
  inquiry->job_nodes = job->nodes;
  inquiry->port = place->second.slurmd_port;
  inquiry->agree[c_.node] = c_.contacts.age(peer, Clock::now());

  std::vector<std::string> monitors;
  for (const std::string& n : neighbours(job->nodes, peer))
    if (n != c_.node && c_.is_live(n) && (!c_.contacts.knows(n) || hears(n)) && monitors.size() < most_asked) monitors.push_back(n);
  c_.ask_all(monitors, {{"VERB", "heard"}, {"NODE", peer}}, question_deadline, [this, inquiry](const Context::Answers& answers) {
    // The last beat reached the others at about the same time; one that was lost on the way makes a difference of a period or two.
    const double enough = c_.site.silent_ms - 2.0 * c_.site.heartbeat_ms;
    for (const auto& [node, answer] : answers) {
      if (!answer || get(*answer, "OK") != "1") continue;
      const auto age = static_cast<double>(get_int(*answer, "AGE_MS", 0));
      if (age >= enough) inquiry->agree[node] = age / 1000;
      else inquiry->hear_it.push_back(node);
    }
    if (--inquiry->parts == 0) conclude(inquiry);
  });
  c_.loop.work(Loop::Pool::probe, [this, inquiry, address = place->second.address]() -> Loop::Action {
    const PortAnswer answer = connect_to_port(address, inquiry->port, connect_deadline);
    return [this, inquiry, answer] {
      inquiry->answer = answer;
      if (--inquiry->parts == 0) conclude(inquiry);
    };
  });
}

void Neighbours::conclude(const std::shared_ptr<Inquiry>& inquiry) {
  const std::string& peer = inquiry->peer;
  if (hears(peer) || !c_.contacts.knows(peer) || !c_.may_judge()) {
    look_again_.erase(peer);
    return;
  }
  if (inquiry->answer == PortAnswer::open || !inquiry->hear_it.empty()) {
    look_again_[peer] = Clock::now() + (inquiry->answer == PortAnswer::open ? alert_pause : partition_pause);
    if (!alerted_.insert(peer).second) return;
    Incident incident;
    incident.id = c_.journal.next_incident();
    incident.origin = c_.node;
    incident.kind = "peer";
    incident.severity = "warning";
    incident.action = "alert";
    incident.node = peer;
    incident.time = wall_time();
    incident.evidence = {inquiry->answer == PortAnswer::open
                             ? fmt::format("the agent of {} is silent, but slurmd port {} is open", peer, inquiry->port)
                             : fmt::format("{} does not hear {}, but {} does", c_.node, peer, fmt::join(inquiry->hear_it, ","))};
    log::warn("{}", incident.evidence.front());
    events_.note(message_from_incident(incident));
    return;
  }
  report(inquiry, 0);
}

// Finds the judge: the nodes of the job in order, until one takes the case.
void Neighbours::report(const std::shared_ptr<Inquiry>& inquiry, size_t candidate) {
  const std::string& peer = inquiry->peer;
  if (hears(peer) || !c_.is_live(peer)) {
    look_again_.erase(peer);
    return;
  }
  const auto& nodes = inquiry->job_nodes;
  while (candidate < nodes.size() && nodes[candidate] != c_.node &&
         (nodes[candidate] == peer || !c_.is_live(nodes[candidate]) || (c_.contacts.knows(nodes[candidate]) && !hears(nodes[candidate]))))
    ++candidate;
  if (candidate >= nodes.size()) {
    look_again_[peer] = Clock::now() + partition_pause;
    return;
  }
  double longest = 0;
  std::vector<std::string> monitors;
  for (const auto& [node, age] : inquiry->agree) {
    longest = std::max(longest, age);
    monitors.push_back(node);
  }
  const std::string evidence = fmt::format("node {} silent: no heartbeat for {} at {}; slurmd port {} {}", peer, seconds_text(longest),
                                           fmt::join(monitors, ","), inquiry->port, describe(inquiry->answer));
  const auto next = [this, inquiry, candidate](const std::string& refusal) {
    if (refusal.empty()) look_again_[inquiry->peer] = Clock::now() + alert_pause;  // until the judge's word arrives
    else if (refusal == "heard") look_again_[inquiry->peer] = Clock::now() + partition_pause;
    else report(inquiry, candidate + 1);
  };
  if (nodes[candidate] == c_.node) return be_judge(peer, evidence, next);
  c_.mesh.ask(nodes[candidate], {{"VERB", "silent"}, {"NODE", peer}, {"EVIDENCE", evidence}}, judge_deadline,
              [next](const std::optional<KeyValues>& answer) {
                if (!answer) next("no answer");
                else next(get(*answer, "OK") == "1" ? "" : get(*answer, "ERROR", "refused"));
              });
}

void Neighbours::report_received(const KeyValues& message, const Mesh::Reply& reply) {
  be_judge(get(message, "NODE"), get(message, "EVIDENCE"), [reply](const std::string& refusal) {
    if (refusal.empty()) reply({{"OK", "1"}});
    else reply({{"OK", "0"}, {"ERROR", refusal}});
  });
}

// `done` gets an empty string where this agent takes the case, else why not: "heard" ends the case.
void Neighbours::be_judge(const std::string& peer, const std::string& evidence, std::function<void(const std::string&)> done) {
  const auto place = c_.mesh.book().find(peer);
  if (shared_job(peer) == nullptr || place == c_.mesh.book().end()) return done("no job of mine has this node");
  if (!c_.is_live(peer) || judging_.contains(peer)) return done("");
  if (!c_.may_judge()) return done("this agent was late itself");
  const double enough = (c_.site.silent_ms - 2.0 * c_.site.heartbeat_ms) / 1000;
  if (c_.contacts.knows(peer) && c_.contacts.age(peer, Clock::now()) < enough) return done("heard");
  judging_.insert(peer);
  c_.loop.work(Loop::Pool::probe, [this, peer, evidence, done, place = place->second, config = c_.slurm_config]() -> Loop::Action {
    const bool controller = !config.controller.empty() && connect_to_port(config.controller, config.controller_port, connect_deadline) == PortAnswer::open;
    const bool port_open = controller && connect_to_port(place.address, place.slurmd_port, connect_deadline) == PortAnswer::open;
    return [this, peer, evidence, done, controller, port_open] {
      judging_.erase(peer);
      if (!controller) return done("no connection to slurmctld");
      controller_reached_ = Clock::now();
      if (port_open || (c_.contacts.knows(peer) && hears(peer))) return done("heard");
      condemn(peer, evidence);
      done("");
    };
  });
}

void Neighbours::condemn(const std::string& peer, const std::string& evidence) {
  if (!c_.condemned.emplace(peer, Condemned{evidence, Clock::now()}).second) return;
  Incident incident;
  incident.id = c_.journal.next_incident();
  incident.origin = c_.node;
  incident.kind = "node";
  incident.severity = "fatal";
  incident.action = "drain";
  incident.node = peer;
  incident.time = wall_time();
  incident.evidence = {evidence};
  events_.raise(incident);
  take_down(peer, drain_reason(evidence, incident.id));
}

// Slurm first, then the jobs that had their script there. Tried until it works, or the node is heard again.
void Neighbours::take_down(const std::string& peer, const std::string& reason) {
  if (c_.is_live(peer)) return;
  c_.loop.work(Loop::Pool::slurm, [this, peer, reason]() -> Loop::Action {
    try {
      const std::string done = c_.slurm.drain_and_down(peer, reason);
      return [this, peer, reason, done] {
        log::info("node {}: {}: {}", peer, done, reason);
        events_.note({{"EVENT", "action"}, {"NODE", peer}, {"EVIDENCE", fmt::format("node {}: {}", peer, done)}});
        jobs_.batch_node_lost(peer);
      };
    } catch (const std::exception& e) {
      return [this, peer, reason, why = std::string(e.what())] {
        log::warn("{}", why);
        c_.loop.after(slurm_retry, [this, peer, reason] { take_down(peer, reason); });
      };
    }
  });
}

}  // namespace mm::agent
