// SPDX-License-Identifier: Apache-2.0
// The part of Agent that answers local clients: who may do what, and the documents for mm-agent. See common/agent_client.h.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "agent/daemon/agent.h"
#include "common/agent_client.h"
#include "common/error.h"
#include "common/hostlist.h"
#include "common/log.h"
#include "common/version.h"

namespace mm::agent {
namespace {

using Json = nlohmann::ordered_json;

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
    ranks_.progress(peer.pid, message);
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
  const auto ok = [&] { answer(client, {{"OK", "1"}}); };
  if (verb == "job" || verb == "task" || verb == "exit") {
    if (!peer.is_root()) return answer(client, failure(fmt::format("{}: only root may register", verb)));
    if (verb == "job") jobs_.add_from_batch(message);
    else if (verb == "task") ranks_.add(message);
    else ranks_.exited(message);
    return ok();
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
  const Mesh::Counts& counts = c_.mesh.counts();
  Json out = {{"node", c_.node},
              {"version", version()},
              {"ok", health_.problems().empty()},
              {"problems", health_.problems()},
              {"slurmd", {{"port", health_.slurmd_port()}, {"listening", health_.slurmd_listens()}}},
              {"slurmctld", fmt::format("{}:{}", c_.slurm_config.controller, c_.slurm_config.controller_port)},
              {"unkillable_step_timeout", c_.slurm_config.unkillable_step_timeout},
              {"dry_run", c_.site.dry_run},
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
