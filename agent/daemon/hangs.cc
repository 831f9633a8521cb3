// SPDX-License-Identifier: Apache-2.0
// The part of Ranks that looks for hangs; see daemon/ranks.h for how the agents share the work.
#include <fmt/format.h>

#include <sstream>

#include "agent/daemon/ranks.h"
#include "common/hostlist.h"

namespace mm::agent {
namespace {

constexpr milliseconds state_deadline{500};
constexpr milliseconds report_deadline{1500};
constexpr milliseconds report_period{2000};

double idle_seconds(const Progress& p, Clock::time_point now) { return std::chrono::duration<double>(now - p.last).count(); }

}  // namespace

void Ranks::look_for_hangs() {
  const auto now = Clock::now();
  bool any = false;
  for (auto& [job_id, job] : c_.registry)
    for (auto& [step_id, step] : job.steps) {
      bool overdue = false;
      for (const auto& [rank, task] : step.tasks) {
        if (task.ended || !task.progress.reports()) continue;
        any = true;
        const double idle = idle_seconds(task.progress, now);
        const auto limit = hang_limit(task.progress, step.hang_timeout), if_stopped = stopped_limit(task.progress, step.hang_timeout);
        overdue = overdue || (limit && idle > *limit);
        if (overdue || !if_stopped || idle <= *if_stopped) continue;
        const auto stat = process_stat(task.process.pid);
        overdue = stat && is_stopped(stat->state);
      }
      const std::string name = job_id + "/" + step_id;
      if (!overdue || step.hang_reported || step.killed || !c_.may_judge() || now < next_hang_report_[name]) continue;
      next_hang_report_[name] = now + report_period;
      std::string judge_node = job.batch_node;
      if (judge_node.empty() || !c_.is_live(judge_node))
        for (const std::string& n : step.nodes)
          if (c_.is_live(n)) {
            judge_node = n;
            break;
          }
      if (judge_node == c_.node) {
        suspect_hang(job_id, step_id, step.nodes);
        continue;
      }
      const KeyValues report = {{"VERB", "hang"}, {"JOB", job_id}, {"STEP", step_id}, {"NODES", compress_hostlist(step.nodes)}};
      c_.mesh.ask(judge_node, report, report_deadline, [](const std::optional<KeyValues>&) {});
    }
  if (any) return;
  hang_timer_.cancel();
  hang_timer_runs_ = false;
}

// One line a rank: rank, phase (- for none), step, seconds without progress, limit, process state.
KeyValues Ranks::states(const std::string& job, const std::string& step_id) const {
  std::string lines;
  const auto j = c_.registry.find(job);
  if (j == c_.registry.end() || !j->second.steps.contains(step_id)) return {{"OK", "1"}, {"RANKS", ""}};
  const Step& step = j->second.steps.at(step_id);
  for (const auto& [rank, task] : step.tasks) {
    if (task.ended) continue;
    const auto stat = process_stat(task.process.pid);
    const bool stopped = stat && is_stopped(stat->state);
    const auto limit = stopped ? stopped_limit(task.progress, step.hang_timeout) : hang_limit(task.progress, step.hang_timeout);
    lines += fmt::format("{} {} {} {:.3f} {:.3f} {}\n", rank, task.progress.phase.empty() ? "-" : task.progress.phase, task.progress.step,
                         task.progress.reports() ? idle_seconds(task.progress, Clock::now()) : 0.0,
                         limit.value_or(0), stat ? stat->state : '?');
  }
  return {{"OK", "1"}, {"RANKS", lines}};
}

void Ranks::suspect_hang(const std::string& job, const std::string& step, const std::vector<std::string>& nodes) {
  if (hangs_judged_.contains({job, step}) || killed_.contains({job, step}) || !c_.may_judge()) return;
  if (!hangs_in_judgement_.insert({job, step}).second) return;
  judge(job, step, nodes);
}

void Ranks::judge(const std::string& job_id, const std::string& step_id, const std::vector<std::string>& nodes) {
  c_.ask_all(nodes, {{"VERB", "ranks"}, {"JOB", job_id}, {"STEP", step_id}}, state_deadline,
             [this, job_id, step_id](const Context::Answers& others) {
    hangs_in_judgement_.erase({job_id, step_id});
    const auto job = c_.registry.find(job_id);
    if (job == c_.registry.end() || killed_.contains({job_id, step_id})) return;
    Context::Answers answers = others;
    answers[c_.node] = states(job_id, step_id);
    std::vector<RankState> ranks;
    for (const auto& [node, answer] : answers) {
      // A node that does not answer may be the cause, and is judged by its silence; the report will come again.
      if (!answer) return;
      std::istringstream lines(get(*answer, "RANKS"));
      RankState r;
      r.node = node;
      while (lines >> r.rank >> r.phase >> r.step >> r.idle >> r.limit >> r.state) {
        ranks.push_back(r);
        if (r.phase == "-") ranks.back().phase.clear();
      }
    }
    const auto verdict = judge_hang(ranks);
    if (!verdict) return;
    hangs_judged_.insert({job_id, step_id});
    events_.publish(job->second, {{"EVENT", "hang"},
                                  {"NODE", verdict->node},
                                  {"STEP_ID", step_id},
                                  {"RANK", std::to_string(verdict->rank)},
                                  {"SECONDS", fmt::format("{:.1f}", verdict->seconds)}});
    Incident incident;
    incident.id = c_.journal.next_incident();
    incident.origin = c_.node;
    incident.kind = "app";
    incident.severity = "error";
    incident.action = "restart";
    incident.node = verdict->node;
    incident.job = job_id;
    incident.step = step_id;
    incident.rank = verdict->rank;
    incident.time = wall_time();
    incident.evidence = {verdict->evidence};
    events_.raise_for_job(job->second, incident);
  });
}

}  // namespace mm::agent
