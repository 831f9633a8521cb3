// SPDX-License-Identifier: Apache-2.0
// The part of Agent that answers local clients: who may do what, and the documents for mm-agent. See common/agent_client.h.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "agent/daemon/agent.h"
#include "agent/incidents/incident_json.h"
#include "common/agent_client.h"
#include "common/error.h"
#include "common/hostlist.h"
#include "common/log.h"
#include "common/version.h"

namespace mm::agent {
namespace {

using Json = nlohmann::ordered_json;

constexpr int enough_unkillable_seconds = 180;
constexpr milliseconds advice_deadline{2000};
constexpr milliseconds check_deadline{1700};  // `mm-agent check` answers within two seconds
constexpr size_t json_limit = agent_message_limit / 2;  // escaping may double it

KeyValues failure(const std::string& why) { return {{"OK", "0"}, {"ERROR", why}}; }

Json json_of(const NicState& nic, const std::string& name) {
  return {{"name", name}, {"present", nic.present}, {"up", nic.up}, {"carrier", nic.carrier}};
}

}  // namespace

void Agent::answer(ClientId client, const KeyValues& message) { server_.send(client, format_key_values(message)); }

void Agent::local_message(ClientId client, const Peer& peer, std::string_view text) {
  const KeyValues message = parse_key_values(text);
  if (!message.contains("VERB")) {
    if (ranks_.progress(peer.pid, message) && get(message, "LISTEN") == "1" && !advice_.listens(client))
      advice_.listen(client, find_task(c_.registry, peer.pid).job->id);
    return;
  }
  try {
    local_request(client, peer, message);
  } catch (const Error& e) {
    answer(client, failure(e.what()));
  }
}

Job& Agent::job_for(const Peer& peer, const std::string& id) {
  const auto at = c_.registry.find(id);
  if (at == c_.registry.end()) throw usage_error(fmt::format("job {} is not known on {}", id, c_.node));
  if (!peer.may_act_for(at->second.uid)) throw usage_error(fmt::format("job {} does not belong to user {}", id, peer.uid));
  return at->second;
}

void Agent::local_request(ClientId client, const Peer& peer, const KeyValues& message) {
  const std::string verb = get(message, "VERB");
  if (verb == "job" || verb == "task" || verb == "exit") {
    if (!peer.is_root()) return answer(client, failure(fmt::format("{}: only root may register", verb)));
    if (verb == "job") jobs_.add_from_batch(message);
    else if (verb == "task") ranks_.add(message);
    else ranks_.exited(message);
    if (get(message, "QUIET") != "1") answer(client, {{"OK", "1"}});
    return;
  }
  if (verb == "watch") {
    const Job& job = job_for(peer, get(message, "JOB"));
    events_.watch(client, job.id);
    return answer(client, {{"OK", "1"}, {"SPARES", std::to_string(job.spares)}});
  }
  if (verb == "kill") {
    const Job& job = job_for(peer, get(message, "JOB"));
    return ranks_.kill_everywhere(job, get(message, "STEP"), [this, client](int killed, const std::vector<std::string>& late) {
      answer(client, {{"OK", "1"}, {"KILLED", std::to_string(killed)}, {"LATE", compress_hostlist(late)}});
    });
  }
  if (verb == "save") {
    const Job& job = job_for(peer, get(message, "JOB"));
    const KeyValues advice = {{"VERB", "advise"}, {"JOB", job.id}, {"ADVICE", "save"}, {"WHY", get(message, "WHY")}};
    advice_.tell_job(advice);
    c_.ask_all(job.nodes, advice, advice_deadline, [](const Context::Answers&) {});
    return answer(client, {{"OK", "1"}});
  }
  if (verb == "requeue") {
    const Job& job = job_for(peer, get(message, "JOB"));
    jobs_.requeue_on_request(job, expand_hostlist(get(message, "EXCLUDE")), get(message, "WHY", "its owner asks for it"));
    return answer(client, {{"OK", "1"}});
  }
  if (verb == "check") return check(client, get(message, "RUN") == "1");
  if (verb == "history") return history(client, peer, message);
  if (verb == "clear") {
    if (!peer.is_root()) return answer(client, failure("clear: only root may take back a drain"));
    return clear(client);
  }
  if (verb == "probe") return health_.probe_nodes(get(message, "NODES", c_.node), [this, client](const KeyValues& found) { answer(client, found); });
  if (verb == "status") return answer(client, {{"OK", "1"}, {"JSON", status_json(peer, get(message, "JOB"))}});
  if (verb == "events") {
    bool more = false;
    KeyValues out = {{"OK", "1"}, {"JSON", events_json(peer, get_int(message, "SINCE", 0), more)}};
    if (more) out.emplace("MORE", "1");
    answer(client, out);
    if (get(message, "FOLLOW") == "1" && !more) events_.follow(client, peer);
    return;
  }
  answer(client, failure(fmt::format("unknown verb '{}'", verb)));
}

// What `mm-agent check` shows: what keeps the node out of launches, and faults of its parts that do not.
std::string Agent::findings_json() const {
  Json out = Json::array();
  for (const std::string& problem : health_.problems()) out.push_back({{"severity", "error"}, {"finding", problem}});
  for (const auto& [key, open] : desk_.open()) {
    const Report& r = open.report;
    const bool part = r.part == Part::gpu || r.part == Part::nic || r.part == Part::storage || r.part == Part::clock;
    if (!part || r.severity < Severity::error || r.action >= Action::restart) continue;
    out.push_back({{"severity", name(r.severity)}, {"finding", fmt::format("{} {}: {}", name(r.part), r.code, r.evidence.empty() ? "" : r.evidence.front())}});
  }
  const int unkillable = c_.slurm_config.unkillable_step_timeout;
  if (unkillable > 0 && unkillable < enough_unkillable_seconds)
    out.push_back({{"severity", "warning"},
                   {"finding", fmt::format("slurm.conf: UnkillableStepTimeout is {} s: below {} s Slurm itself drains healthy nodes after one has died", unkillable,
                                           enough_unkillable_seconds)}});
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void Agent::check(ClientId client, bool run) {
  const auto done = [this, client] { answer(client, {{"OK", "1"}, {"JSON", findings_json()}}); };
  if (run && hardware_) hardware_->run_all(check_deadline, done);
  else done();
}

// An admin's word that the node is repaired: a passing check, then our own drain is taken back, never another's.
void Agent::clear(ClientId client) {
  const auto failed = [this, client](const std::string& why) {
    desk_.end_clear(false);
    answer(client, failure(why));
  };
  const auto checked = [this, client, failed] {
    std::vector<std::string> wrong = hardware_ ? hardware_->seen_now() : std::vector<std::string>();
    for (const std::string& nic : c_.site.training_interfaces)
      if (!health_.nics().state(nic).fine()) wrong.push_back(fmt::format("training NIC {}: {}", nic, health_.nics().state(nic).describe()));
    if (!wrong.empty()) return failed(fmt::format("clear: the check does not pass: {}", fmt::join(wrong, "; ")));
    c_.loop.work(Loop::Pool::slurm, [this, client, failed]() -> Loop::Action {
      try {
        const std::string done = c_.slurm.undrain(c_.node);
        return [this, client, done] {
          desk_.end_clear(true);
          c_.registry_changed();
          events_.note({{"EVENT", "action"}, {"EVIDENCE", fmt::format("node {}: cleared by root: {}", c_.node, done)}});
          answer(client, {{"OK", "1"}, {"DONE", done}});
        };
      } catch (const std::exception& e) {
        return [failed, why = std::string(e.what())] { failed(why); };
      }
    });
  };
  const bool begun = desk_.begin_clear([this, checked] {
    if (hardware_) hardware_->run_all(check_deadline, checked);
    else checked();
  });
  if (!begun) answer(client, failure("clear: another one is under way"));
}

void Agent::history(ClientId client, const Peer& peer, const KeyValues& message) {
  const double since = std::strtod(get(message, "SINCE", "0").c_str(), nullptr);
  const int most = static_cast<int>(std::clamp<int64_t>(get_int(message, "MOST", 100), 1, 1000));
  history_.ask(since, get(message, "DEVICE"), most, [this, client, root = peer.is_root()](const std::string& json) {
    Json all = Json::parse(json), out = Json::array();
    size_t size = 0;
    for (Json& entry : all) {
      // What concerns ranks is for the job's owner, whom the history does not know.
      if (!root && (entry["class"] == "app" || entry["job"] != "")) continue;
      size += entry.dump().size();
      if (size > json_limit) break;
      out.push_back(std::move(entry));
    }
    answer(client, {{"OK", "1"}, {"JSON", out.dump(-1, ' ', false, Json::error_handler_t::replace)}});
  });
}

std::string Agent::status_json(const Peer& peer, const std::string& only) const {
  Json nics = Json::array();
  for (const std::string& name : c_.site.training_interfaces) nics.push_back(json_of(health_.nics().state(name), name));
  Json jobs = Json::array();
  const auto now = Clock::now();
  for (const auto& [id, job] : c_.registry) {
    if (!peer.may_act_for(job.uid) || (!only.empty() && id != only)) continue;
    Json steps = Json::array();
    for (const auto& [step_id, step] : job.steps) {
      Json tasks = Json::array();
      for (const auto& [rank, t] : step.tasks) {
        Json task = {{"rank", rank}, {"local_rank", t.local_rank}, {"pid", t.process.pid}, {"ended", t.ended}};
        if (t.progress.reports()) {
          task["phase"] = t.progress.phase;
          task["step"] = t.progress.step;
          task["checkpoint"] = t.progress.checkpoint;
          task["idle_s"] = std::chrono::duration<double>(now - t.progress.last).count();
          if (const auto limit = hang_limit(t.progress, step.hang_timeout)) task["hang_after_s"] = *limit;
        }
        tasks.push_back(std::move(task));
      }
      steps.push_back({{"step", step_id}, {"nodes", compress_hostlist(step.nodes)}, {"ntasks", step.task_count}, {"killed", step.killed}, {"tasks", std::move(tasks)}});
    }
    jobs.push_back({{"job", id},
                    {"uid", job.uid},
                    {"nodes", compress_hostlist(job.nodes)},
                    {"batch_node", job.batch_node},
                    {"restarts", job.restarts},
                    {"spares", job.spares},
                    {"requeue", job.requeue ? "auto" : "off"},
                    {"steps", std::move(steps)}});
  }
  Json peers = Json::array();
  for (const auto& [name, time] : c_.contacts.all())
    peers.push_back({{"node", name}, {"heard_ms", static_cast<int64_t>(c_.contacts.age(name, now) * 1000)}, {"silent", !c_.is_live(name)}});
  Json open = Json::array();
  for (const auto& [key, o] : desk_.open()) open.push_back(json_from_incident(desk_.incident_of(o)));
  Json kernel_log = {{"path", c_.site.kernel_log}, {"reads", kernel_ && kernel_->reads()}, {"lines", kernel_ ? kernel_->lines() : 0}, {"lost", kernel_ ? kernel_->lost() : 0}};
  const Mesh::Counts& counts = c_.mesh.counts();
  Json out = {{"node", c_.node},
              {"version", version()},
              {"ok", health_.problems().empty()},
              {"problems", health_.problems()},
              {"slurmd", {{"port", health_.slurmd_port()}, {"listening", health_.slurmd_listens()}}},
              {"slurmctld", fmt::format("{}:{}", c_.slurm_config.controller, c_.slurm_config.controller_port)},
              {"unkillable_step_timeout", c_.slurm_config.unkillable_step_timeout},
              {"dry_run", c_.site.dry_run},
              {"incidents", std::move(open)},
              {"kernel_log", std::move(kernel_log)},
              {"nics", std::move(nics)},
              {"peers", std::move(peers)},
              {"datagrams", {{"sent", counts.sent}, {"received", counts.received}, {"refused", counts.refused}, {"dropped", counts.dropped}}},
              {"jobs", std::move(jobs)}};
  std::string text = out.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() <= json_limit) return text;
  // Too many ranks for one message: the counts remain.
  for (Json& job : out["jobs"])
    for (Json& step : job["steps"]) {
      step["task_count"] = step["tasks"].size();
      step.erase("tasks");
    }
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Agent::events_json(const Peer& peer, int64_t since, bool& more) const {
  std::string out = "[";
  for (const Journal::Event& e : c_.journal.events()) {
    if (e.number <= since || (!e.open && !peer.may_act_for(e.owner))) continue;
    if (out.size() + e.json.size() > json_limit) {
      more = true;
      break;
    }
    if (out.size() > 1) out += ',';
    out += e.json;
  }
  return out + "]";
}

}  // namespace mm::agent
