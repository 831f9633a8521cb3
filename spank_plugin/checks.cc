// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/checks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "common/error.h"

namespace mm::spank {
namespace {

Job job_of(const Record& record) {
  Job job;
  job.file = record.value;
  job.parallel.tp = record.tp;
  job.parallel.pp = record.pp;
  job.parallel.cp = record.cp;
  job.parallel.encoder_tp = record.encoder_tp;
  job.parallel.encoder_dp = record.encoder_dp;
  job.recovery.spares = record.spares;
  return job;
}

// "verbose", alone or as an item of the list, is taken out: it is no key of a job.
std::string take_verbose(const std::string& value, bool& verbose) {
  constexpr std::string_view word = "verbose";
  std::string rest;
  for (size_t begin = 0; begin < value.size();) {
    const size_t end = std::min(value.find(',', begin), value.size());
    const std::string item = value.substr(begin, end - begin);
    begin = end + 1;
    if (item == word)
      verbose = true;
    else
      rest += (rest.empty() ? "" : ",") + item;
  }
  return !verbose ? value : rest.empty() ? "auto" : rest;
}

}  // namespace

std::optional<Request> read_request(const std::string& given) {
  bool verbose = false;
  const std::string value = take_verbose(given, verbose);
  const Spec spec = parse_spec(value);
  if (spec.kind == Spec::Kind::off) return {};
  if (spec.kind == Spec::Kind::file) refuse_untrainable(spec.job);
  Request out;
  out.job = spec.job;
  Record& r = out.record;
  r.value = given;
  r.verbose = verbose;
  r.spec = spec.kind == Spec::Kind::file ? std::filesystem::absolute(value).lexically_normal().string() : value;
  r.tp = spec.job.parallel.tp;
  r.pp = spec.job.parallel.pp;
  r.cp = spec.job.parallel.cp;
  if (const int ranks = encoder_ranks(spec.job); ranks > 0) {
    r.encoder_tp = std::max(1, spec.job.parallel.encoder_tp);
    r.encoder_dp = ranks / r.encoder_tp;
  }
  r.spares = spec.job.recovery.spares;
  r.hang_timeout = hang_timeout_seconds(spec.job);
  r.requeue = spec.job.recovery.requeue != "off";
  return out;
}

std::optional<Request> read_inherited_request(const Record& record) {
  if (record.spec.rfind('/', 0) == 0 && ::access(record.spec.c_str(), R_OK) != 0) return Request{job_of(record), record};
  std::optional<Request> out = read_request(record.spec);
  if (out) {
    out->record.value = record.value;
    out->record.verbose = record.verbose;
    out->record.tasks = record.tasks;
  }
  return out;
}

int check_submission(const Job& job, const Stated& stated) {
  if (stated.heterogeneous) throw usage_error("--mm-train: heterogeneous jobs (\":\", #SBATCH hetjob) are not supported");
  const Counts counts = counts_of(stated);
  const int spares = job.recovery.spares;
  if (counts.nodes && spares > 0 && spares >= *counts.nodes)
    throw usage_error(
        fmt::format("{}: recovery.spares {} of {} nodes leaves none to train on", job.file, spares, *counts.nodes));
  if (!counts.tasks || (spares > 0 && (!counts.nodes || !counts.tasks_per_node))) return 0;
  const int tasks = *counts.tasks - spares * counts.tasks_per_node.value_or(0);
  if (tasks < 1)
    throw usage_error(fmt::format("{}: {} tasks less those of {} spare nodes leave none", job.file, *counts.tasks, spares));
  try {
    job_layout(job, tasks);
  } catch (const Error& e) {
    if (spares == 0) throw;
    throw usage_error(fmt::format("{} (of {} tasks, {} on {} spare node{})", e.what(), *counts.tasks, *counts.tasks - tasks,
                                  spares, spares == 1 ? "" : "s"));
  }
  return tasks;
}

bool is_helper(const Record& record, const StepSize& step) {
  if (!step.inherited || step.tasks == record.tasks) return false;
  return step.tasks < step.job_nodes || (step.tasks == step.job_nodes && (record.tasks > 0 || record.spares > 0));
}

void check_step(const Job& job, int tasks) {
  try {
    job_layout(job, tasks);
  } catch (const Error& e) {
    throw usage_error(fmt::format("{}; for a step that does not train: srun --mm-train=off", e.what()));
  }
}

}  // namespace mm::spank
