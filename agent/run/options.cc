// SPDX-License-Identifier: Apache-2.0
#include "agent/run/options.h"

#include <fmt/format.h>

#include <charconv>

#include "agent/run/launch_size.h"
#include "common/agent_client.h"
#include "common/error.h"
#include "common/hostlist.h"
#include "common/job.h"
#include "common/site.h"
#include "common/smaller_layouts.h"

namespace mm::run {
namespace {

std::string text_of(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value == nullptr ? "" : value;
}

std::optional<int> number_of(const Environment& environment, const char* name) {
  const std::string text = text_of(environment, name);
  if (text.empty()) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1)
    throw usage_error(fmt::format("{}={} in the environment is not a positive number", name, text));
  return value;
}

int tasks_per_node(const Options& options, const Environment& environment, int used_nodes) {
  if (options.ntasks_per_node) return *options.ntasks_per_node;
  if (const auto n = number_of(environment, "SLURM_NTASKS_PER_NODE")) return *n;
  const auto tasks = number_of(environment, "SLURM_NTASKS"), nodes = number_of(environment, "SLURM_NNODES");
  if (!tasks || !nodes) return 1;
  if (*tasks % *nodes == 0) return *tasks / *nodes;
  // After a requeue the tasks may count only for the nodes that are needed.
  if (*tasks % used_nodes == 0) return *tasks / used_nodes;
  throw usage_error(fmt::format(
      "the job has {} tasks on {} nodes, which are not the same number on each; say --ntasks-per-node", *tasks, *nodes));
}

void count_nodes(const Options& options, int wanted_spares, Plan& plan) {
  const int have = static_cast<int>(plan.allocation.size());
  if (options.nodes) {
    const int spares = options.spares.value_or(0);
    if (*options.nodes + spares > have)
      throw usage_error(
          fmt::format("{} nodes and {} spares are more than the {} of job {}", *options.nodes, spares, have, plan.job_id));
    plan.nodes = *options.nodes;
  } else {
    if (wanted_spares >= have)
      throw usage_error(fmt::format("{} spares leave no node of the {} of job {} to run on", wanted_spares, have, plan.job_id));
    plan.nodes = have - wanted_spares;
  }
  plan.spares = have - plan.nodes;
}

// The most nodes first; on so many, the layout that the job file names first.
std::vector<Plan::Fit> smaller_fits(const Job& job, const Plan& plan) {
  std::vector<Plan::Fit> out;
  for (int nodes = plan.nodes - 1; nodes > 0; --nodes)
    for (const SmallerLayout& smaller : smaller_layouts(job)) {
      Job with = job;
      if (!smaller.same) with.parallel.tp = smaller.tp, with.parallel.cp = smaller.cp, with.parallel.pp = smaller.pp;
      try {
        job_layout(with, nodes * plan.tasks_per_node);
      } catch (const Error&) {
        continue;
      }
      out.push_back({nodes, smaller.same ? "" : fmt::format("tp={},cp={},pp={}", smaller.tp, smaller.cp, smaller.pp)});
      break;
    }
  return out;
}

}  // namespace

Plan make_plan(const Options& options, const Environment& environment, const SparesLeft& spares_left) {
  Plan plan;
  plan.job_id = text_of(environment, "SLURM_JOB_ID");
  if (plan.job_id.empty())
    throw usage_error("not inside a Slurm job: run it from a script given to sbatch, or in a shell of salloc");
  if (environment("SLURM_HET_SIZE") != nullptr || environment("SLURM_JOB_ID_HET_GROUP_0") != nullptr)
    throw usage_error(fmt::format("job {} is heterogeneous, which mm-run does not support", plan.job_id));
  plan.allocation = expand_hostlist(text_of(environment, "SLURM_JOB_NODELIST"));
  if (plan.allocation.empty()) throw usage_error("SLURM_JOB_NODELIST is empty: not inside a Slurm job");
  if (text_of(environment, "SLURM_RESTART_COUNT") != "0")
    plan.requeues = number_of(environment, "SLURM_RESTART_COUNT").value_or(0);
  plan.node = this_node();
  plan.agent_socket = text_of(environment, "MM_AGENT_SOCKET");
  if (plan.agent_socket.empty() || options.config)
    plan.agent_socket = agent_socket_path(load_site(options.config.value_or(Site::default_path)).run_dir, plan.node);

  Spec spec;
  spec.kind = Spec::Kind::off;
  if (const std::string text = text_of(environment, "MM_TRAIN_SPEC"); !text.empty()) {
    spec = parse_spec(text);
    plan.plugin = spec.kind != Spec::Kind::off;
  }
  if (options.job_file) {
    spec.kind = Spec::Kind::file;
    spec.job = load_job(*options.job_file);
  }
  int spares = spec.job.recovery.spares;
  if (plan.requeues > 0) {
    const int have = static_cast<int>(plan.allocation.size());
    const auto before = spec.kind == Spec::Kind::file ? read_launch_size(spec.job.run.dir, plan.job_id) : std::nullopt;
    spares = before && *before > 0 && *before <= have ? have - *before : spares_left(plan).value_or(spares);
  }
  count_nodes(options, options.spares.value_or(spares), plan);
  plan.tasks_per_node = tasks_per_node(options, environment, plan.nodes);
  plan.cpus_per_task = number_of(environment, "SLURM_CPUS_PER_TASK");
  plan.max_restarts = options.max_restarts.value_or(spec.job.recovery.max_restarts);
  if (spec.kind == Spec::Kind::file) {
    plan.run_folder = spec.job.run.dir;
    plan.node_folder = spec.job.checkpoint.node_folder;
    plan.scavenge = (has_tier(spec.job, "memory") || has_tier(spec.job, "node")) && !has_tier(spec.job, "peer");
  }
  if (spec.kind != Spec::Kind::off) {
    job_layout(spec.job, plan.tasks());
    plan.fits = smaller_fits(spec.job, plan);
  }
  plan.may_requeue = spec.job.recovery.requeue == "auto";
  plan.hang_timeout = spec.job.recovery.hang_timeout;
  plan.srun_arguments = options.srun_arguments;
  plan.command = options.command;
  plan.json = options.json;
  return plan;
}

}  // namespace mm::run
