// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "agent/slurm/spool.h"
#include "common/error.h"
#include "common/hostlist.h"
#include "common/log.h"

namespace mm::agent {
namespace {

constexpr int the_daemon = -1;  // in place of a rank: the step's slurmstepd
constexpr milliseconds status_grace{300};   // for Slurm's side to say the exit status
constexpr milliseconds kill_patience{700};  // for killed processes to end; the asker waits for 1 s
constexpr milliseconds kill_deadline{1000};
constexpr milliseconds progress_period{250};
constexpr size_t most_killed = 10000;
// A launch that was under way when its step was killed registers within this time. Later, the step's number may be that of a new run.
constexpr std::chrono::seconds launch_time{30};
constexpr std::chrono::seconds new_run_window{5};

std::string needed(const KeyValues& message, const char* name) {
  const std::string value = get(message, name);
  if (value.empty()) throw usage_error(fmt::format("{}: {}= is missing", get(message, "VERB"), name));
  return value;
}

int needed_int(const KeyValues& message, const char* name) {
  const int64_t value = get_int(message, name, -1);
  if (value < 0 || value > 1 << 30) throw usage_error(fmt::format("{}: {}= is missing or no number", get(message, "VERB"), name));
  return static_cast<int>(value);
}

// "0,1,2"
std::vector<int> needed_ints(const KeyValues& message, const char* name) {
  std::vector<int> out;
  const std::string list = needed(message, name) + ",";
  for (size_t begin = 0, end; (end = list.find(',', begin)) != std::string::npos; begin = end + 1)
    out.push_back(needed_int({{"VERB", get(message, "VERB")}, {name, list.substr(begin, end - begin)}}, name));
  return out;
}

Step* find_step(Registry& registry, const std::string& job, const std::string& step) {
  const auto j = registry.find(job);
  if (j == registry.end()) return nullptr;
  const auto s = j->second.steps.find(step);
  return s == j->second.steps.end() ? nullptr : &s->second;
}

bool has_live_task(const Step& step) {
  return std::any_of(step.tasks.begin(), step.tasks.end(), [](const auto& t) { return !t.second.ended; });
}

}  // namespace

Ranks::Ranks(Context& context, Events& events) : c_(context), events_(events), hang_timer_(context.loop), progress_timer_(context.loop) {}

std::string Ranks::key(const std::string& job, const std::string& step, int rank) { return fmt::format("{}/{}/{}", job, step, rank); }

void Ranks::add(const KeyValues& message) {
  const std::string job_id = needed(message, "JOB"), step_id = needed(message, "STEP");
  const std::vector<int> ranks = needed_ints(message, "RANK"), pids = needed_ints(message, "PID");
  const std::vector<int> local_ranks = message.contains("LOCAL_RANK") ? needed_ints(message, "LOCAL_RANK") : std::vector<int>(ranks.size());
  if (pids.size() != ranks.size() || local_ranks.size() != ranks.size())
    throw usage_error(fmt::format("task: {} ranks, but {} local ranks and {} process ids", ranks.size(), local_ranks.size(), pids.size()));
  const std::vector<std::string> nodes = expand_hostlist(needed(message, "NODES"));
  auto at = c_.registry.find(job_id);
  if (at == c_.registry.end()) {
    // A job without a batch script (salloc), or whose announcement is still on its way.
    Job job;
    job.id = job_id;
    job.uid = static_cast<uid_t>(needed_int(message, "UID"));
    job.nodes = nodes;
    at = c_.registry.emplace(job_id, std::move(job)).first;
  }
  Step& step = at->second.steps[step_id];
  step.id = step_id;
  step.uid = static_cast<uid_t>(needed_int(message, "UID"));
  step.nodes = nodes;
  step.task_count = needed_int(message, "NTASKS");
  step.hang_timeout = std::strtod(get(message, "HANG_TIMEOUT", "0").c_str(), nullptr);
  step.registered = Clock::now();
  const auto killed = killed_.find({job_id, step_id});
  step.killed = killed != killed_.end() && Clock::now() - killed->second < launch_time;

  const auto daemon = ancestor_named(pids.front(), "slurmstepd");
  if (daemon && step.daemon != daemon) {
    // Another slurmstepd: what is known under this number is of an earlier run.
    for (const auto& [old_rank, old] : step.tasks) {
      kill_process(old.process);
      watched_.erase(key(job_id, step_id, old_rank));
    }
    step.tasks.clear();
    step.hang_reported = false;
    hangs_judged_.erase({job_id, step_id});
    step.daemon = daemon;
    watch(job_id, step_id, the_daemon, *daemon);
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    Task task;
    task.rank = ranks[i];
    task.local_rank = local_ranks[i];
    task.process = identify(pids[i]).value_or(ProcessId{pids[i], 0});
    step.tasks.insert_or_assign(task.rank, task);
    watch(job_id, step_id, task.rank, task.process);
    if (step.killed) kill_process(task.process);
  }
  c_.registry_changed();
}

void Ranks::watch(const std::string& job, const std::string& step, int rank, const ProcessId& process) {
  const std::string name = key(job, step, rank);
  watched_.erase(name);
  UniqueFd pidfd = open_process(process);
  if (!pidfd) return c_.loop.post([this, job, step, rank] { ended(job, step, rank); });
  Watched& w = watched_[name];
  w.pidfd = std::move(pidfd);
  w.watch = FdWatch(c_.loop, w.pidfd.get(), [this, job, step, rank] { ended(job, step, rank); });
}

void Ranks::ended(const std::string& job, const std::string& step_id, int rank) {
  watched_.erase(key(job, step_id, rank));
  Step* step = find_step(c_.registry, job, step_id);
  if (step == nullptr) return;
  if (rank == the_daemon) return settle(job, step_id);
  const auto at = step->tasks.find(rank);
  if (at == step->tasks.end() || at->second.ended || alive(at->second.process)) return;
  at->second.ended = true;
  c_.registry_changed();
  settle(job, step_id);
  if (at->second.status) return report_exit(job, step_id, rank);
  const ProcessId process = at->second.process;
  c_.loop.after(status_grace, [this, job, step_id, rank, process] {
    Step* s = find_step(c_.registry, job, step_id);
    if (s == nullptr) return;
    const auto t = s->tasks.find(rank);
    if (t != s->tasks.end() && t->second.process == process) report_exit(job, step_id, rank);
  });
}

void Ranks::exited(const KeyValues& message) {
  const std::string job = needed(message, "JOB"), step_id = needed(message, "STEP");
  const int rank = needed_int(message, "RANK");
  Step* step = find_step(c_.registry, job, step_id);
  if (step == nullptr) return;
  const auto at = step->tasks.find(rank);
  const int64_t pid = get_int(message, "PID", 0);
  if (at == step->tasks.end() || (pid != 0 && pid != at->second.process.pid)) return;
  at->second.status = static_cast<int>(get_int(message, "STATUS", 0));
  if (at->second.ended) report_exit(job, step_id, rank);
  else ended(job, step_id, rank);  // nothing, while the process is still there: the pidfd will tell
}

void Ranks::report_exit(const std::string& job_id, const std::string& step_id, int rank) {
  const auto at = c_.registry.find(job_id);
  Step* step = find_step(c_.registry, job_id, step_id);
  if (step == nullptr || !step->tasks.contains(rank)) return;
  const int status = step->tasks.at(rank).status.value_or(-1);
  step->tasks.erase(rank);
  c_.registry_changed();
  events_.publish_to_batch(at->second,
                           {{"EVENT", "exit"}, {"STEP", step_id}, {"RANK", std::to_string(rank)}, {"STATUS", std::to_string(status)}}, status != 0);
  settle(job_id, step_id);
}

// Answers those who wait for the end of a step's ranks, and forgets steps and jobs that are no more.
void Ranks::settle(const std::string& job_id, const std::string& step_id) {
  Step* step = find_step(c_.registry, job_id, step_id);
  if (step != nullptr && has_live_task(*step)) return;
  const auto [begin, end] = kills_.equal_range(job_id + "/" + step_id);
  std::vector<Kill> waiting;
  for (auto it = begin; it != end; ++it) waiting.push_back(std::move(it->second));
  kills_.erase(begin, end);
  for (const Kill& k : waiting) k.done(k.killed);
  const auto job = c_.registry.find(job_id);
  step = find_step(c_.registry, job_id, step_id);
  if (step == nullptr || !step->tasks.empty() || (step->daemon && alive(*step->daemon))) return;
  job->second.steps.erase(step_id);
  hangs_judged_.erase({job_id, step_id});
  next_hang_report_.erase(job_id + "/" + step_id);
  c_.registry_changed();
  if (job->second.steps.empty() && emptied_) emptied_(job_id);
}

void Ranks::resume() {
  for (const auto& [job_id, job] : c_.registry)
    for (const auto& [step_id, step] : job.steps) {
      if (step.killed) killed_[{job_id, step_id}] = Clock::now();
      if (step.daemon) watch(job_id, step_id, the_daemon, *step.daemon);
      for (const auto& [rank, task] : step.tasks) {
        if (!task.ended) watch(job_id, step_id, rank, task.process);
        else c_.loop.post([this, job_id = job_id, step_id = step_id, rank = rank] { report_exit(job_id, step_id, rank); });
      }
      c_.loop.post([this, job_id = job_id, step_id = step_id] { settle(job_id, step_id); });
    }
}

void Ranks::kill_here(const std::string& job, const std::string& step_id, std::function<void(int)> done) {
  if (step_id.empty()) {
    std::vector<std::string> steps;
    if (const auto at = c_.registry.find(job); at != c_.registry.end())
      for (const auto& [id, step] : at->second.steps) steps.push_back(id);
    if (steps.empty()) return done(0);
    auto missing = std::make_shared<size_t>(steps.size());
    auto total = std::make_shared<int>(0);
    for (const std::string& id : steps)
      kill_here(job, id, [missing, total, done](int killed) {
        *total += killed;
        if (--*missing == 0) done(*total);
      });
    return;
  }
  if (killed_.size() >= most_killed) killed_.erase(killed_.begin());
  killed_[{job, step_id}] = Clock::now();
  Step* step = find_step(c_.registry, job, step_id);
  if (step == nullptr) return done(0);
  step->killed = true;
  c_.registry_changed();
  int killed = 0;
  for (auto& [rank, task] : step->tasks)
    if (!task.ended) killed += kill_process(task.process) ? 1 : 0;
  if (!has_live_task(*step)) return done(killed);
  const auto at = kills_.emplace(job + "/" + step_id, Kill{killed, std::move(done), std::make_unique<Timer>(c_.loop)});
  // A process in uninterruptible sleep does not end: the answer says what was killed, and the pidfd will tell the end.
  at->second.timer->start(kill_patience, [this, at, killed] {
    const auto answer = std::move(at->second.done);
    kills_.erase(at);
    answer(killed);
  });
}

void Ranks::kill_everywhere(const Job& job, const std::string& step_id, std::function<void(int, std::vector<std::string>)> done) {
  const auto step = job.steps.find(step_id);
  std::vector<std::string> asked, late;
  for (const std::string& n : step == job.steps.end() ? job.nodes : step->second.nodes) {
    if (c_.is_live(n)) asked.push_back(n);
    else late.push_back(n);  // known to be silent: not worth a second of waiting
  }
  struct Total {
    int parts = 2, killed = 0;
    std::vector<std::string> late;
    std::function<void(int, std::vector<std::string>)> done;
    void part() {
      if (--parts == 0) done(killed, late);
    }
  };
  auto total = std::make_shared<Total>();
  total->late = std::move(late);
  total->done = std::move(done);
  kill_here(job.id, step_id, [total](int killed) {
    total->killed += killed;
    total->part();
  });
  c_.ask_all(asked, {{"VERB", "kill"}, {"JOB", job.id}, {"STEP", step_id}}, kill_deadline, [total](const Context::Answers& answers) {
    for (const auto& [node, answer] : answers) {
      if (answer) total->killed += static_cast<int>(get_int(*answer, "KILLED", 0));
      else total->late.push_back(node);
    }
    total->part();
  });
}

int Ranks::kill_ranks(Job& job) {
  int killed = 0;
  for (auto& [id, step] : job.steps)
    for (auto& [rank, task] : step.tasks)
      if (!task.ended) killed += kill_process(task.process) ? 1 : 0;
  return killed;
}

int Ranks::end_earlier_run(Job& job) {
  Job earlier = job;
  std::erase_if(earlier.steps, [](const auto& s) { return Clock::now() - s.second.registered < new_run_window; });
  std::erase_if(job.steps, [&](const auto& s) { return earlier.steps.contains(s.first); });
  forget(job.id);
  return tear_down(earlier);
}

int Ranks::tear_down(Job& job) {
  int killed = kill_ranks(job);
  for (auto& [id, step] : job.steps)
    if (step.daemon) killed += kill_tree(*step.daemon);
  if (job.batch.pid > 0 && alive(job.batch)) {
    const auto daemon = ancestor_named(job.batch.pid, "slurmstepd");
    killed += daemon ? kill_tree(*daemon) : kill_tree(job.batch);
  }
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const SlurmConfig& slurm = c_.slurm_config;
  for (const std::string& folder : {slurm.spool, slurm.pmix_clients.empty() ? slurm.temporary : slurm.pmix_clients})
    remove_pmix_leftovers(spool_folder(folder, c_.node, host), job.id);
  return killed;
}

std::vector<std::string> Ranks::killed_steps(const std::string& job) const {
  std::vector<std::string> out;
  for (auto it = killed_.lower_bound({job, ""}); it != killed_.end() && it->first.first == job; ++it) out.push_back(it->first.second);
  return out;
}

void Ranks::forget(const std::string& job) {
  std::erase_if(killed_, [&](const auto& entry) { return entry.first.first == job; });
  std::erase_if(hangs_judged_, [&](const auto& entry) { return entry.first == job; });
  std::erase_if(next_hang_report_, [&](const auto& entry) { return entry.first.starts_with(job + "/"); });
}

bool Ranks::progress(pid_t pid, const KeyValues& message) {
  const FoundTask found = find_task(c_.registry, pid);
  if (!found) return false;
  update(found.task->progress, message, Clock::now());
  if (!hang_timer_runs_) {
    hang_timer_runs_ = true;
    hang_timer_.repeat(milliseconds(1000), [this] { look_for_hangs(); });
  }
  if (found.task->rank != 0) return true;
  const Progress& p = found.task->progress;
  const std::string name = found.job->id + "/" + found.step->id;
  progress_to_send_[name] = {{"EVENT", "progress"}, {"JOB", found.job->id},  {"STEP_ID", found.step->id},
                             {"RANK", "0"},         {"LOSS", p.loss},        {"PHASE", p.phase},
                             {"STEP", std::to_string(p.step)}, {"CHECKPOINT", std::to_string(p.checkpoint)}};
  if (!progress_timer_runs_) flush_progress();
  return true;
}

// The first word goes out at once, then the newest one a few times a second.
void Ranks::flush_progress() {
  progress_timer_runs_ = !progress_to_send_.empty();
  for (const auto& [name, event] : std::exchange(progress_to_send_, {}))
    if (const auto job = c_.registry.find(get(event, "JOB")); job != c_.registry.end()) events_.progress(job->second, event);
  if (progress_timer_runs_) progress_timer_.start(progress_period, [this] { flush_progress(); });
}

}  // namespace mm::agent
