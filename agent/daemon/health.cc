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

std::string nic_key(const std::string& nic) { return "nic/" + nic; }

std::string clock_text() { return fmt::format("{:%H:%M:%S}", fmt::localtime(std::time(nullptr))); }

}  // namespace

Health::Health(Context& context, Events& events, Desk& desk)
    : c_(context),
      events_(events),
      desk_(desk),
      nics_(context.loop, [this](const std::string& nic, const NicState& before, const NicState& now) { nic_changed(nic, before, now); }),
      slurmd_timer_(context.loop) {}

bool Health::is_training_nic(const std::string& nic) const {
  const auto& list = c_.site.training_interfaces;
  return std::find(list.begin(), list.end(), nic) != list.end();
}

std::string Health::state_to_text() const { return format_key_values({{"HAD_LINK", fmt::format("{}", fmt::join(had_link_, ","))}}); }

void Health::state_from_text(const std::string& text) {
  const std::vector<std::string> list = expand_hostlist(get(parse_key_values(text), "HAD_LINK"));
  had_link_ = std::set<std::string>(list.begin(), list.end());
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
      desk_.over(nic_key(nic));
    } else if (had_link_.contains(nic) && !desk_.is_open(nic_key(nic))) {
      nic_failed(nic, now);
    }
  }
  c_.registry_changed();
}

void Health::nic_changed(const std::string& nic, const NicState& before, const NicState& now) {
  if (is_training_nic(nic)) {
    if (now.fine()) {
      had_link_.insert(nic);
      if (desk_.is_open(nic_key(nic)))
        events_.note({{"EVENT", "nic"}, {"DEVICE", nic}, {"EVIDENCE", fmt::format("training NIC {}: the link is back; the node stays drained", nic)}});
      desk_.over(nic_key(nic), fmt::format("the link of {} is back", nic));
      c_.registry_changed();
    } else if (before.fine() || (had_link_.contains(nic) && !desk_.is_open(nic_key(nic)))) {
      nic_failed(nic, now);
    }
  } else if (nic == management_nic_ && before.fine() != now.fine()) {
    log::warn("management NIC {}: {}", nic, now.describe());
    events_.note({{"EVENT", "nic"}, {"DEVICE", nic}, {"EVIDENCE", fmt::format("management NIC {}: {}", nic, now.describe())}});
  }
}

void Health::nic_failed(const std::string& nic, const NicState& now) {
  Report r;
  r.part = Part::nic;
  r.code = "carrier_lost";
  r.device = nic;
  r.severity = Severity::fatal;
  r.action = Action::drain;
  // Either way the kernel says that the carrier is lost; that somebody set the interface down is worth knowing.
  r.evidence = {fmt::format("nic {} carrier lost{} on {} at {}", nic, !now.present ? " (interface removed)" : !now.up ? " (interface set down)" : "",
                            c_.node, clock_text())};
  desk_.report(nic_key(nic), r);
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
    desk_.over("slurmd");
  }
  if (slurmd_misses_ < misses_to_report || !slurmd_listens_) return;
  slurmd_listens_ = false;
  Report r;
  r.part = Part::slurm;
  r.code = "slurmd_port";
  r.evidence = {fmt::format("slurmd of {} does not listen on port {}", c_.node, slurmd_port_)};
  desk_.report("slurmd", r);
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
  for (const char* key : {"munge/down", "hang/munge"})
    if (const auto at = desk_.open().find(key); at != desk_.open().end()) out.push_back(at->second.report.evidence.front());
  for (std::string& problem : desk_.problems()) out.push_back(std::move(problem));
  return out;
}

KeyValues Health::probe() const {
  const auto found = problems();
  if (found.empty()) {
    KeyValues out = {{"OK", "1"}};
    if (const auto doubt = desk_.doubt()) out["DOUBT"] = *doubt;
    return out;
  }
  return {{"OK", "0"}, {"ERROR", fmt::format("{}", fmt::join(found, "; "))}};
}

void Health::probe_nodes(const std::string& list, std::function<void(const KeyValues&)> done) {
  struct Probe {
    std::vector<std::string> nodes;
    std::map<std::string, std::string> bad, doubtful;
    int parts = 2;
    bool answered = false;
    std::function<void(const KeyValues&)> done;
    void answer() {
      if (std::exchange(answered, true)) return;
      KeyValues out = {{"OK", "1"}};
      std::vector<std::string> good_nodes, bad_nodes, doubtful_nodes;
      for (const std::string& n : nodes) {
        const auto at = bad.find(n);
        if (at == bad.end()) {
          good_nodes.push_back(n);
          if (const auto doubt = doubtful.find(n); doubt != doubtful.end()) {
            doubtful_nodes.push_back(n);
            out["WHY_" + n] = doubt->second;
          }
          continue;
        }
        bad_nodes.push_back(n);
        out["WHY_" + n] = at->second;
      }
      out["GOOD"] = compress_hostlist(good_nodes);
      out["BAD"] = compress_hostlist(bad_nodes);
      if (!doubtful_nodes.empty()) out["DOUBTFUL"] = compress_hostlist(doubtful_nodes);
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
      if (const auto doubt = desk_.doubt()) p->doubtful[n] = *doubt;
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
      else if (answer->contains("DOUBT")) p->doubtful[node] = get(*answer, "DOUBT");
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
