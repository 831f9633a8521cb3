// SPDX-License-Identifier: Apache-2.0
// slurmstepd: the environment of each task, and the step's registration with the agent of its node.
//
// Here a plugin's error can drain the node, so nothing here fails a task: what goes wrong is said, and the task starts. A
// user's file is never read here; what the job asked for comes with the record (record.h).
#include <fmt/format.h>
#include <net/if.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "common/error.h"
#include "common/hostlist.h"
#include "common/site.h"
#include "spank_plugin/contexts.h"
#include "spank_plugin/environment.h"
#include "spank_plugin/record.h"
#include "spank_plugin/step_agent.h"
#include "spank_plugin/step_binding.h"

namespace mm::spank {
namespace {

std::optional<std::string> variable(spank_t spank, const char* name) {
  std::string buffer(128 * 1024, '\0');
  if (spank_getenv(spank, name, buffer.data(), static_cast<int>(buffer.size())) != ESPANK_SUCCESS) return {};
  return std::string(buffer.c_str());
}

// Names of nodes from an environment that is the user's: nothing where they could become many gigabytes.
std::vector<std::string> nodes_in(spank_t spank, const char* name) {
  constexpr size_t longest_name = 256;
  const std::string list = variable(spank, name).value_or("");
  size_t length = 0, depth = 0;
  for (const char c : list) {
    if (c == '[') ++depth;
    if (c == ']' && depth > 0) --depth;
    length = depth > 0 ? length : c == ',' ? 0 : length + 1;
    if (length > longest_name) return {};
  }
  return expand_hostlist(list);
}

template <typename T>
T item(spank_t spank, spank_item which, T otherwise) {
  T value = otherwise;
  return spank_get_item(spank, which, &value) == ESPANK_SUCCESS ? value : otherwise;
}

struct Place {
  uint32_t job = 0, step = 0, restarts = 0;
  std::vector<std::string> nodes;  // of the step (of the job in a batch step), in Slurm's order
  std::string node;
  bool is_script = false;  // a batch script, or the shell of an interactive step
  bool has_tasks = false;
};

// SLURMD_NODENAME is this node's in the environment of a task only: before, it is what srun was started with, the batch node's.
Place place_of(spank_t spank, bool in_task) {
  Place p;
  p.job = item<uint32_t>(spank, S_JOB_ID, 0);
  p.step = item<uint32_t>(spank, S_JOB_STEPID, 0);
  p.restarts = item<uint32_t>(spank, S_SLURM_RESTART_COUNT, 0);
  p.is_script = p.step == batch_step || p.step == interactive_step;
  p.has_tasks = p.step < last_real_step;
  p.nodes = nodes_in(spank, p.has_tasks ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST");
  const uint32_t index = item<uint32_t>(spank, S_JOB_NODEID, 0);
  const std::string host = this_node();
  const std::string told = in_task ? variable(spank, "SLURMD_NODENAME").value_or("") : "";
  if (!told.empty())
    p.node = told;
  else if (std::find(p.nodes.begin(), p.nodes.end(), host) != p.nodes.end() || index >= p.nodes.size())
    p.node = host;
  else
    p.node = p.nodes[index];
  return p;
}

// The site file is the admin's, and a mistake in it must cost no job: defaults then, and the reason for whoever asks.
// They are read once for a slurmstepd and, as step_prepare runs before it forks, for all its tasks.
const Site& site_settings(std::string& problem) {
  struct Settings {
    Site site;
    std::string problem;
  };
  static const Settings settings = [] {
    Settings s;
    try {
      s.site = load_site(plugin().config);
    } catch (const std::exception& e) {
      s.problem = e.what();
    }
    return s;
  }();
  problem = settings.problem;
  return settings.site;
}

std::optional<Record> record_of(spank_t spank) {
  return parse_record(variable(spank, record_variable).value_or(""));
}

TaskFacts facts_of(spank_t spank, const Record& record, const Place& place, const Site& site) {
  TaskFacts f;
  f.job_id = place.job;
  f.step_id = place.step;
  f.restarts = place.restarts;
  f.rank = static_cast<int>(item<uint32_t>(spank, S_TASK_GLOBAL_ID, 0));
  f.local_rank = item<int>(spank, S_TASK_ID, 0);
  f.tasks = static_cast<int>(item<uint32_t>(spank, S_JOB_TOTAL_TASK_COUNT, 1));
  f.local_tasks = static_cast<int>(item<uint32_t>(spank, S_JOB_LOCAL_TASK_COUNT, 1));
  f.tp = record.tp;
  f.pp = record.pp;
  f.cp = record.cp;
  f.stage_speeds = record.stage_speeds;
  f.encoder_ranks = record.encoder_tp * record.encoder_dp;
  f.node = place.node;
  f.nodes = record.order.empty() ? place.nodes : expand_hostlist(record.order);
  f.master = record.master;
  f.agent_socket = agent_socket_path(site.run_dir, place.node);
  for (const std::string& name : site.training_interfaces)
    if (::if_nametoindex(name.c_str()) != 0) f.interfaces.push_back(name);
  f.visible_gpus = variable(spank, "CUDA_VISIBLE_DEVICES").value_or("");
  f.step_gpus = variable(spank, "SLURM_STEP_GPUS").value_or("");
  f.gpu_bind = variable(spank, "SLURMD_TRES_BIND").value_or("").find("gpu:") != std::string::npos;
  f.node_gpus = std::atoi(variable(spank, "SLURM_GPUS_ON_NODE").value_or("0").c_str());
  cpu_set_t cpus;
  if (::sched_getaffinity(0, sizeof cpus, &cpus) == 0) f.cpus = CPU_COUNT(&cpus);
  return f;
}

// What is the same for all tasks of a slurmstepd, looked up once. Only outside of tasks.
struct Known {
  std::optional<Record> record;  // none: a job without --mm-train
  Place place;
  std::optional<StepAgent> agent;
};
Known& known(spank_t spank) {
  static Known instance = [&] {
    Known k;
    k.record = record_of(spank);
    if (!k.record) return k;
    k.place = place_of(spank, false);
    std::string problem;
    k.agent.emplace(agent_socket_path(site_settings(problem).run_dir, k.place.node));
    if (!problem.empty()) slurm_info("mm-train: site settings: %s", problem.c_str());
    return k;
  }();
  return instance;
}

}  // namespace

void step_prepare() {
  std::string problem;
  site_settings(problem);
}

void step_task_environment(spank_t spank) {
  const std::optional<Record> record = record_of(spank);
  if (!record) return;
  const Place place = place_of(spank, true);
  if (!place.is_script && !place.has_tasks) return;
  if (record->refused && place.has_tasks) ::_exit(1);  // srun has said why
  std::string problem;
  const Site& site = site_settings(problem);
  TaskEnvironment environment;
  if (place.is_script) {
    environment.values = {{"MM_AGENT_SOCKET", agent_socket_path(site.run_dir, place.node)},
                          {"MM_TRAIN_SPEC", record->spec},
                          {"MM_TRAIN_SPARES", fmt::format("{}", record->spares)}};
  } else {
    const TaskFacts facts = facts_of(spank, *record, place, site);
    environment = task_environment(facts);
    environment.values.merge(bind_this_task(spank, *record, facts, site));
    if (facts.local_rank == 0 && !environment.warning.empty()) slurm_spank_log("mm-train: %s", environment.warning.c_str());
    if (facts.local_rank == 0 && !problem.empty())
      slurm_spank_log("mm-train: %s: site settings: %s", place.node.c_str(), problem.c_str());
    if (record->ordered && variable(spank, "SLURM_DISTRIBUTION").value_or("") == "arbitrary")
      spank_unsetenv(spank, "SLURM_DISTRIBUTION");
  }
  for (const auto& [name, value] : environment.values) spank_setenv(spank, name.c_str(), value.c_str(), 0);
  spank_setenv(spank, exported_variable, list_exported(environment.values).c_str(), 1);
}

void step_task_started(spank_t spank) {
  Known& k = known(spank);
  if (!k.record) return;
  KeyValues message = {{"JOB", fmt::format("{}", k.place.job)},
                       {"UID", fmt::format("{}", item<uid_t>(spank, S_JOB_UID, 0))},
                       {"NODES", compress_hostlist(k.place.nodes)}};
  const pid_t pid = item<pid_t>(spank, S_TASK_PID, 0);
  if (k.place.step == batch_step) {
    message.insert({{"VERB", "job"},
                    {"BATCH_NODE", k.place.node},
                    {"BATCH_PID", fmt::format("{}", pid)},
                    {"RESTARTS", fmt::format("{}", k.place.restarts)},
                    {"SPARES", fmt::format("{}", k.record->spares)},
                    {"REQUEUE", k.record->requeue ? "auto" : "off"}});
    k.agent->ask(message);
  } else if (k.place.has_tasks) {
    message.insert({{"VERB", "task"},
                    {"STEP", fmt::format("{}", k.place.step)},
                    {"NTASKS", fmt::format("{}", item<uint32_t>(spank, S_JOB_TOTAL_TASK_COUNT, 0))},
                    {"HANG_TIMEOUT", fmt::format("{:g}", k.record->hang_timeout)}});
    k.agent->started(message, {item<uint32_t>(spank, S_TASK_GLOBAL_ID, 0), item<int>(spank, S_TASK_ID, 0), pid},
                     item<uint32_t>(spank, S_JOB_LOCAL_TASK_COUNT, 1));
  }
}

void step_task_ended(spank_t spank) {
  Known& k = known(spank);
  if (!k.record || !k.place.has_tasks) return;
  k.agent->tell({{"VERB", "exit"},
                 {"JOB", fmt::format("{}", k.place.job)},
                 {"STEP", fmt::format("{}", k.place.step)},
                 {"RANK", fmt::format("{}", item<uint32_t>(spank, S_TASK_GLOBAL_ID, 0))},
                 {"PID", fmt::format("{}", item<pid_t>(spank, S_TASK_PID, 0))},
                 {"STATUS", fmt::format("{}", item<int>(spank, S_TASK_EXIT_STATUS, 0))}});
}

}  // namespace mm::spank
