// SPDX-License-Identifier: Apache-2.0
#include "agent/registry/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/hostlist.h"

namespace mm::agent {
namespace {

using Json = nlohmann::json;

Json to_json(const ProcessId& p) { return {{"pid", p.pid}, {"start", p.start}}; }
ProcessId process_from(const Json& j) { return {j.at("pid").get<pid_t>(), j.at("start").get<uint64_t>()}; }

Json to_json(const Step& step) {
  Json tasks = Json::array();
  for (const auto& [rank, t] : step.tasks) {
    Json task = {{"rank", t.rank}, {"local_rank", t.local_rank}, {"process", to_json(t.process)}, {"ended", t.ended}};
    if (t.status) task["status"] = *t.status;
    tasks.push_back(std::move(task));
  }
  Json out = {{"id", step.id},           {"uid", step.uid},       {"nodes", compress_hostlist(step.nodes)}, {"tasks", std::move(tasks)},
              {"ntasks", step.task_count}, {"killed", step.killed}, {"hang_timeout", step.hang_timeout}};
  if (step.daemon) out["daemon"] = to_json(*step.daemon);
  return out;
}

Step step_from(const Json& j) {
  Step step;
  step.id = j.at("id");
  step.uid = j.at("uid");
  step.nodes = expand_hostlist(j.at("nodes").get<std::string>());
  step.task_count = j.at("ntasks");
  step.killed = j.at("killed");
  step.hang_timeout = j.at("hang_timeout");
  if (j.contains("daemon")) step.daemon = process_from(j.at("daemon"));
  for (const Json& t : j.at("tasks")) {
    Task task;
    task.rank = t.at("rank");
    task.local_rank = t.at("local_rank");
    task.process = process_from(t.at("process"));
    task.ended = t.at("ended");
    if (t.contains("status")) task.status = t.at("status").get<int>();
    step.tasks.emplace(task.rank, std::move(task));
  }
  return step;
}

std::string needed(const KeyValues& message, const char* key) {
  const std::string value = get(message, key);
  if (value.empty()) throw usage_error(fmt::format("job: {}= is missing", key));
  return value;
}

}  // namespace

bool Job::has_live_task() const {
  for (const auto& [name, step] : steps)
    for (const auto& [rank, task] : step.tasks)
      if (!task.ended) return true;
  return false;
}

bool Job::has_node(const std::string& node) const { return std::find(nodes.begin(), nodes.end(), node) != nodes.end(); }

Job job_from_message(const KeyValues& message) {
  Job job;
  job.id = needed(message, "JOB");
  const int64_t uid = get_int(message, "UID", -1);
  if (uid < 0) throw usage_error(fmt::format("job {}: UID= is missing or no number", job.id));
  job.uid = static_cast<uid_t>(uid);
  job.nodes = expand_hostlist(needed(message, "NODES"));
  job.batch_node = get(message, "BATCH_NODE");
  job.restarts = static_cast<int>(get_int(message, "RESTARTS", 0));
  job.spares = static_cast<int>(get_int(message, "SPARES", 0));
  job.requeue = get(message, "REQUEUE", "auto") != "off";
  return job;
}

KeyValues message_from_job(const Job& job) {
  return {{"VERB", "job"},
          {"JOB", job.id},
          {"UID", std::to_string(job.uid)},
          {"NODES", compress_hostlist(job.nodes)},
          {"BATCH_NODE", job.batch_node},
          {"RESTARTS", std::to_string(job.restarts)},
          {"SPARES", std::to_string(job.spares)},
          {"REQUEUE", job.requeue ? "auto" : "off"}};
}

FoundTask find_task(Registry& registry, pid_t pid) {
  const std::vector<pid_t> line = with_ancestors(pid);
  FoundTask found;
  size_t nearest = line.size();
  for (auto& [id, job] : registry)
    for (auto& [step_id, step] : job.steps)
      for (auto& [rank, task] : step.tasks) {
        const auto at = std::find(line.begin(), line.end(), task.process.pid);
        if (at == line.end() || static_cast<size_t>(at - line.begin()) >= nearest || !alive(task.process)) continue;
        nearest = static_cast<size_t>(at - line.begin());
        found = {&job, &step, &task};
      }
  return found;
}

std::string registry_to_json(const Registry& registry) {
  Json out = Json::array();
  for (const auto& [id, job] : registry) {
    Json steps = Json::array();
    for (const auto& [step_id, step] : job.steps) steps.push_back(to_json(step));
    out.push_back({{"id", job.id},
                   {"uid", job.uid},
                   {"nodes", compress_hostlist(job.nodes)},
                   {"batch_node", job.batch_node},
                   {"batch", to_json(job.batch)},
                   {"restarts", job.restarts},
                   {"spares", job.spares},
                   {"requeue", job.requeue},
                   {"steps", std::move(steps)}});
  }
  return out.dump();
}

Registry registry_from_json(const std::string& text) {
  Registry out;
  for (const Json& j : Json::parse(text)) {
    Job job;
    job.id = j.at("id");
    job.uid = j.at("uid");
    job.nodes = expand_hostlist(j.at("nodes").get<std::string>());
    job.batch_node = j.at("batch_node");
    job.batch = process_from(j.at("batch"));
    job.restarts = j.at("restarts");
    job.spares = j.at("spares");
    job.requeue = j.at("requeue");
    for (const Json& s : j.at("steps")) {
      Step step = step_from(s);
      job.steps.emplace(step.id, std::move(step));
    }
    out.emplace(job.id, std::move(job));
  }
  return out;
}

}  // namespace mm::agent
