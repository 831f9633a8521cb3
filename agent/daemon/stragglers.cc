// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/stragglers.h"

#include <fmt/format.h>

#include <sstream>

#include "agent/incidents/robust.h"

namespace mm::agent {
namespace {

constexpr milliseconds period{5000}, a_node{50}, deadline{2000};
constexpr size_t enough_steps = 8;
constexpr int times_to_tell = 3;

}  // namespace

Stragglers::Stragglers(Context& context, Events& events, Desk& desk) : c_(context), events_(events), desk_(desk), timer_(context.loop) {}

void Stragglers::start() {
  timer_.repeat(period, [this] { look(); });
}

KeyValues Stragglers::paces(const std::string& job_id, const std::string& step_id) const {
  std::string lines;
  if (const auto job = c_.registry.find(job_id); job != c_.registry.end())
    if (const auto step = job->second.steps.find(step_id); step != job->second.steps.end())
      for (const auto& [rank, task] : step->second.tasks) {
        const auto& busy = task.progress.busy_seconds;
        if (!task.ended && task.progress.phase == "train" && busy.size() >= enough_steps)
          lines += fmt::format("{} {:.6f} {}\n", rank, median({busy.begin(), busy.end()}), task.progress.group.empty() ? "-" : task.progress.group);
      }
  KeyValues out = {{"OK", "1"}, {"PACES", lines}};
  for (const auto& [key, open] : desk_.open()) {
    const Report& r = open.report;
    if (r.part == Part::app || r.part == Part::slurm || r.part == Part::peer || r.evidence.empty()) continue;
    out["CLASS"] = std::string(name(r.part));
    out["DEVICE"] = r.device;
    out["EVIDENCE"] = r.evidence.front();
    break;
  }
  return out;
}

void Stragglers::look() {
  const auto now = Clock::now();
  std::erase_if(next_, [&](const auto& n) { return now - n.second > std::chrono::hours(1); });
  for (const auto& [job_id, job] : c_.registry) {
    std::string judge_node = job.batch_node;
    if (judge_node.empty() || !c_.is_live(judge_node))
      for (const std::string& n : job.nodes)
        if (c_.is_live(n)) {
          judge_node = n;
          break;
        }
    if (judge_node != c_.node || !c_.may_judge()) continue;
    for (const auto& [step_id, step] : job.steps) {
      auto& next = next_[{job_id, step_id}];
      // Where no rank of this node says how long it works, none of the others does.
      if (step.killed || now < next || get(paces(job_id, step_id), "PACES").empty()) continue;
      next = now + std::max(period / 2, a_node * static_cast<int>(step.nodes.size()));
      c_.ask_all(step.nodes, {{"VERB", "paces"}, {"JOB", job_id}, {"STEP", step_id}}, deadline,
                 [this, job_id = job_id, step_id = step_id](const Context::Answers& answers) { judge(job_id, step_id, answers); });
    }
  }
}

void Stragglers::judge(const std::string& job_id, const std::string& step_id, const Context::Answers& others) {
  const auto job = c_.registry.find(job_id);
  if (job == c_.registry.end()) return;
  Context::Answers answers = others;
  answers[c_.node] = paces(job_id, step_id);
  std::vector<Pace> all;
  for (const auto& [node, answer] : answers) {
    if (!answer) return;  // a node that is silent is looked at by others
    std::istringstream lines(get(*answer, "PACES"));
    Pace p;
    p.node = node;
    while (lines >> p.rank >> p.seconds >> p.group) all.push_back(p);
  }
  std::map<Key, int> slow;
  for (const Straggler& s : find_stragglers(all)) {
    const Key key = {job_id, step_id, s.pace.rank};
    const int times = slow[key] = slow_[key] + 1;
    const bool move = times == times_to_move();
    if (times == times_to_tell || move) tell(job->second, step_id, s, *answers[s.pace.node], move);
  }
  // Those of other steps stay.
  std::erase_if(slow_, [&](const auto& s) { return std::get<0>(s.first) == job_id && std::get<1>(s.first) == step_id; });
  slow_.merge(slow);
  std::erase_if(incidents_, [&](const auto& i) { return !slow_.contains(i.first); });
}

int Stragglers::times_to_move() const {
  return std::max(times_to_tell + 1, static_cast<int>(std::chrono::seconds(c_.site.straggler_s) / period));
}

void Stragglers::tell(const Job& job, const std::string& step, const Straggler& slow, const KeyValues& node, bool move) {
  if (move && job.spares == 0) return;  // nowhere to
  int64_t& id = incidents_[{job.id, step, slow.pace.rank}];
  if (id == 0) id = c_.journal.next_incident();
  Incident i;
  i.id = id;
  i.origin = c_.node;
  // Only what is of a node moves the work away from it.
  i.kind = get(node, "CLASS", move ? "node" : "app");
  i.code = "straggler";
  i.scope = "rank";
  i.device = get(node, "DEVICE");
  i.severity = move ? "error" : "warning";
  i.action = move ? "restart" : "alert";
  i.node = slow.pace.node;
  i.job = job.id;
  i.step = step;
  i.rank = slow.pace.rank;
  i.time = wall_time();
  i.evidence = {fmt::format("rank {} on {} works {:.3g} s a step, others that do the same {:.3g} s", slow.pace.rank, slow.pace.node, slow.pace.seconds, slow.usual)};
  if (const std::string why = get(node, "EVIDENCE"); !why.empty()) i.evidence.push_back(why);
  events_.raise_for_job(job, i);
}

}  // namespace mm::agent
