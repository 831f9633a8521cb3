// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/health.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "agent/probes/port.h"
#include "common/hostlist.h"
#include "common/log.h"

namespace mm::agent {
namespace {

constexpr milliseconds slurmd_period{2000};
constexpr int misses_to_report = 2;  // a restart of slurmd is no news
constexpr milliseconds probe_deadline{300};
constexpr milliseconds drain_retry{2000};

std::string clock_text() { return fmt::format("{:%H:%M:%S}", fmt::localtime(std::time(nullptr))); }

}  // namespace

Health::Health(Context& context, Events& events)
    : c_(context),
      events_(events),
      nics_(context.loop, [this](const std::string& nic, const NicState& before, const NicState& now) { nic_changed(nic, before, now); }),
      slurmd_timer_(context.loop) {}

bool Health::is_training_nic(const std::string& nic) const {
  const auto& list = c_.site.training_interfaces;
  return std::find(list.begin(), list.end(), nic) != list.end();
}

std::string Health::state_to_text() const {
  return format_key_values({{"HAD_LINK", fmt::format("{}", fmt::join(had_link_, ","))}, {"REPORTED", fmt::format("{}", fmt::join(reported_, ","))}});
}

void Health::state_from_text(const std::string& text) {
  const KeyValues saved = parse_key_values(text);
  const auto words = [&](const char* key) {
    const std::vector<std::string> list = expand_hostlist(get(saved, key));
    return std::set<std::string>(list.begin(), list.end());
  };
  had_link_ = words("HAD_LINK");
  reported_ = words("REPORTED");
}

void Health::slurm_known() {
  const auto self = c_.mesh.book().find(c_.node);
  if (self == c_.mesh.book().end()) return;
  slurmd_port_ = self->second.slurmd_port;
  management_nic_ = interface_of_address(self->second.address);
  slurmd_timer_.repeat(slurmd_period, [this] { check_slurmd(); });
  // A link that was lost while no agent ran.
  for (const std::string& nic : c_.site.training_interfaces) {
    const NicState now = nics_.state(nic);
    if (now.fine()) {
      had_link_.insert(nic);
      reported_.erase(nic);
    } else if (had_link_.contains(nic) && !reported_.contains(nic)) {
      nic_failed(nic, now);
    }
  }
  c_.registry_changed();
}

void Health::nic_changed(const std::string& nic, const NicState& before, const NicState& now) {
  if (is_training_nic(nic)) {
    if (now.fine()) {
      had_link_.insert(nic);
      if (reported_.erase(nic) > 0)
        events_.note({{"EVENT", "nic"}, {"DEVICE", nic}, {"EVIDENCE", fmt::format("training NIC {}: the link is back; the node stays drained", nic)}});
      c_.registry_changed();
    } else if (before.fine() || (had_link_.contains(nic) && !reported_.contains(nic))) {
      nic_failed(nic, now);
    }
  } else if (nic == management_nic_ && before.fine() != now.fine()) {
    log::warn("management NIC {}: {}", nic, now.describe());
    events_.note({{"EVENT", "nic"}, {"DEVICE", nic}, {"EVIDENCE", fmt::format("management NIC {}: {}", nic, now.describe())}});
  }
}

void Health::nic_failed(const std::string& nic, const NicState& now) {
  if (!reported_.insert(nic).second) return;
  Incident incident;
  incident.id = c_.journal.next_incident();
  incident.origin = c_.node;
  incident.kind = "nic";
  incident.device = nic;
  incident.severity = "fatal";
  incident.action = "drain";
  incident.node = c_.node;
  incident.time = wall_time();
  // Either way the kernel says that the carrier is lost; that somebody set the interface down is worth knowing.
  incident.evidence = {fmt::format("nic {} carrier lost{} on {} at {}", nic, !now.present ? " (interface removed)" : !now.up ? " (interface set down)" : "",
                                   c_.node, clock_text())};
  events_.raise(incident);
  c_.registry_changed();
  drain_self(nic, drain_reason(incident.evidence.front(), incident.id));
}

// Tried until it works. An attempt after the first needs the fault to be there still: slurmctld may have been out of reach for long.
void Health::drain_self(const std::string& nic, const std::string& reason) {
  c_.loop.work(Loop::Pool::slurm, [this, nic, reason]() -> Loop::Action {
    try {
      const std::string done = c_.slurm.drain(c_.node, reason);
      return [this, reason, done] {
        log::info("node {}: {}: {}", c_.node, done, reason);
        events_.note({{"EVENT", "action"}, {"EVIDENCE", fmt::format("node {}: {}", c_.node, done)}});
      };
    } catch (const std::exception& e) {
      return [this, nic, reason, why = std::string(e.what())] {
        log::warn("{}", why);
        c_.loop.after(drain_retry, [this, nic, reason] {
          if (!nics_.state(nic).fine()) drain_self(nic, reason);
        });
      };
    }
  });
}

void Health::check_slurmd() {
  const auto listens = port_is_listening(slurmd_port_);
  if (!listens) {
    // No table of sockets in this kernel.
    c_.loop.work(Loop::Pool::probe, [this, port = slurmd_port_, address = c_.mesh.book().at(c_.node).address]() -> Loop::Action {
      const bool open = connect_to_port(address, port, probe_deadline) == PortAnswer::open;
      return [this, open] { slurmd_misses_ = open ? 0 : slurmd_misses_ + 1; };
    });
  } else {
    slurmd_misses_ = *listens ? 0 : slurmd_misses_ + 1;
  }
  if (slurmd_misses_ == 0 && !slurmd_listens_) {
    slurmd_listens_ = true;
    events_.note({{"EVENT", "slurmd"}, {"EVIDENCE", fmt::format("slurmd port {} is open again", slurmd_port_)}});
  }
  if (slurmd_misses_ < misses_to_report || !slurmd_listens_) return;
  slurmd_listens_ = false;
  Incident incident;
  incident.id = c_.journal.next_incident();
  incident.origin = c_.node;
  incident.kind = "slurm";
  incident.severity = "warning";
  incident.action = "alert";
  incident.node = c_.node;
  incident.time = wall_time();
  incident.evidence = {fmt::format("slurmd of {} does not listen on port {}", c_.node, slurmd_port_)};
  events_.raise(incident);
}

std::vector<std::string> Health::problems() const {
  std::vector<std::string> out;
  for (const std::string& nic : c_.site.training_interfaces) {
    const NicState now = nics_.state(nic);
    if (now.fine()) continue;
    out.push_back(had_link_.contains(nic) ? fmt::format("training NIC {}: {}", nic, now.describe())
                                          : fmt::format("training NIC {}: {}", nic, now.present ? "no carrier" : "no such interface"));
  }
  if (slurmd_port_ == 0) out.push_back("Slurm has not told this node's address yet");
  else if (!port_is_listening(slurmd_port_).value_or(slurmd_listens_)) out.push_back(fmt::format("slurmd does not listen on port {}", slurmd_port_));
  return out;
}

KeyValues Health::probe() const {
  const auto found = problems();
  if (found.empty()) return {{"OK", "1"}};
  return {{"OK", "0"}, {"ERROR", fmt::format("{}", fmt::join(found, "; "))}};
}

void Health::probe_nodes(const std::string& list, std::function<void(const KeyValues&)> done) {
  struct Probe {
    std::vector<std::string> nodes;
    std::map<std::string, std::string> bad;
    int parts = 2;
    bool answered = false;
    std::function<void(const KeyValues&)> done;
    void answer() {
      if (std::exchange(answered, true)) return;
      KeyValues out = {{"OK", "1"}};
      std::vector<std::string> good_nodes, bad_nodes;
      for (const std::string& n : nodes) {
        const auto at = bad.find(n);
        if (at == bad.end()) {
          good_nodes.push_back(n);
          continue;
        }
        bad_nodes.push_back(n);
        out["WHY_" + n] = at->second;
      }
      out["GOOD"] = compress_hostlist(good_nodes);
      out["BAD"] = compress_hostlist(bad_nodes);
      done(out);
    }
  };
  auto p = std::make_shared<Probe>();
  p->nodes = expand_hostlist(list);
  p->done = std::move(done);
  std::vector<std::string> live;
  for (const std::string& n : p->nodes) {
    if (n == c_.node) {
      if (const auto found = problems(); !found.empty()) p->bad[n] = found.front();
    } else if (const auto condemned = c_.condemned.find(n); condemned != c_.condemned.end()) {
      p->bad[n] = condemned->second.evidence;
    } else if (!c_.mesh.book().contains(n)) {
      p->bad[n] = "not known to Slurm";
    } else {
      live.push_back(n);
    }
  }
  c_.ask_all(live, {{"VERB", "probe"}}, probe_deadline, [p](const Context::Answers& answers) {
    for (const auto& [node, answer] : answers) {
      if (!answer) p->bad[node] = "its agent does not answer";
      else if (get(*answer, "OK") != "1") p->bad[node] = get(*answer, "ERROR", "unfit");
    }
    if (--p->parts == 0) p->answer();
  });
  // Drained nodes, as far as slurmctld says so in time: where it is away, that says nothing about the nodes.
  c_.loop.work(Loop::Pool::slurm, [this, p, list]() -> Loop::Action {
    std::vector<NodeRecord> records;
    try {
      records = c_.slurm.nodes(list);
    } catch (const std::exception& e) {
      log::debug("{}", e.what());
    }
    return [p, records] {
      for (const NodeRecord& r : records)
        if (r.drained() || r.down()) p->bad.try_emplace(r.name, fmt::format("{} in Slurm ({})", r.down() ? "down" : "drained", r.reason));
      if (--p->parts == 0) p->answer();
    };
  });
  c_.loop.after(probe_deadline * 2, [p] { p->answer(); });
}

}  // namespace mm::agent
