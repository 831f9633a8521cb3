// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/time_limits.h"

#include <fmt/format.h>

#include "agent/incidents/incident.h"
#include "agent/slurm/end_time.h"

namespace mm::agent {
namespace {

constexpr milliseconds period{2500}, often{5000}, seldom{60000}, deadline{5000};
constexpr double last_part = 120;  // seconds

}  // namespace

void TimeLimits::start() {
  timer_.repeat(period, [this] { look(); });
}

void TimeLimits::look() {
  std::erase_if(jobs_, [&](const auto& j) { return !c_.registry.contains(j.first); });
  for (const auto& [id, job] : c_.registry) {
    const std::string& asker = job.batch_node.empty() && !job.nodes.empty() ? job.nodes.front() : job.batch_node;
    Known& known = jobs_[id];
    if (known.run != job.restarts) known = {job.restarts, 0, {}, known.asking};
    if (asker != c_.node || known.asking || Clock::now() < known.next) continue;
    known.asking = true;
    c_.loop.work(Loop::Pool::slurm, [this, id = id, run = job.restarts, conf = c_.site.slurm_conf]() -> Loop::Action {
      const auto found = ask_run_end(id, conf);  // nothing: what was told stays
      const double end = found && found->restarts == run ? found->time : 0;
      return [this, id, run, end] { learnt(id, run, end); };
    });
  }
}

void TimeLimits::learnt(const std::string& id, int run, double end) {
  const auto at = jobs_.find(id);
  const auto job = c_.registry.find(id);
  if (at == jobs_.end() || job == c_.registry.end()) return;
  Known& known = at->second;
  known.asking = false;
  if (known.run != run) return;
  const double last = end > 0 ? end : known.end;
  known.next = Clock::now() + (last > 0 && last - wall_time() < last_part ? often : seldom);
  if (end <= 0 || end == known.end) return;
  known.end = end;
  const KeyValues advice = {{"VERB", "advise"}, {"JOB", id}, {"RESTARTS", std::to_string(run)}, {"ADVICE", "end"}, {"END", fmt::format("{:.0f}", end)},
                            {"WHY", "the job's time limit"}};
  advice_.tell_job(advice);
  c_.ask_all(job->second.nodes, advice, deadline, [](const Context::Answers&) {});
}

}  // namespace mm::agent
