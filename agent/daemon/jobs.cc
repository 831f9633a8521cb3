// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "common/hostlist.h"
#include "common/log.h"

namespace mm::agent {
namespace {

constexpr milliseconds announce_deadline{20000};
constexpr milliseconds question_deadline{2000};
constexpr milliseconds look_period{5000};
constexpr milliseconds idle_verify_period{60000};
constexpr milliseconds verify_retry{2000};
constexpr milliseconds ending_grace{10000};
constexpr size_t most_remembered = 1000;  // jobs

bool still_runs_here(const JobRecord& record, const Job& job, const std::string& node) {
  return record.restarts == job.restarts && (record.state == "RUNNING" || record.state == "SUSPENDED" || record.state == "CONFIGURING") &&
         std::find(record.nodes.begin(), record.nodes.end(), node) != record.nodes.end();
}

}  // namespace

Jobs::Jobs(Context& context, Events& events, Ranks& ranks) : c_(context), events_(events), ranks_(ranks), timer_(context.loop) {
  ranks_.on_empty([this](const std::string& id) {
    const auto at = c_.registry.find(id);
    if (at == c_.registry.end()) return;
    // Nothing will tell the end of a job without a batch script; a later step registers it anew.
    if (ending_.contains(id) || at->second.batch_node.empty()) remove(id);
  });
}

void Jobs::add_from_batch(const KeyValues& message) {
  Job job = job_from_message(message);
  if (job.batch_node.empty()) job.batch_node = c_.node;
  if (const auto batch = identify(static_cast<pid_t>(get_int(message, "BATCH_PID", 0)))) job.batch = *batch;
  // What the batch step says of its run may be too low (see below), and must not be taken for news of an earlier run.
  std::erase_if(over_, [&](const std::string& run) { return run.starts_with(job.id + "."); });
  if (const auto known = c_.registry.find(job.id); known != c_.registry.end()) job.restarts = std::max(job.restarts, known->second.restarts);
  add(job);
  ask_for_restarts(job.id);
}

// Slurm 22.05 tells a plugin in the batch step that each run is the first. slurmctld knows; the other nodes are told when it has answered.
void Jobs::ask_for_restarts(const std::string& id) {
  c_.loop.work(Loop::Pool::slurm, [this, id]() -> Loop::Action {
    std::optional<JobRecord> record;
    try {
      record = c_.slurm.job(id);
    } catch (const std::exception& e) {
      log::warn("job {}: its restart count is taken from its batch step: {}", id, e.what());
    }
    return [this, id, record] {
      const auto at = c_.registry.find(id);
      if (at == c_.registry.end()) return;
      Job job = at->second;
      if (record) job.restarts = std::max(job.restarts, record->restarts);
      if (job.restarts != at->second.restarts) {
        at->second.restarts = job.restarts;  // the same run, by its right number
        count_spares(at->second);
        c_.registry_changed();
      }
      announce(at->second);
    };
  });
}

void Jobs::count_spares(Job& job) const {
  if (const auto needed = needed_.find(job.id); needed != needed_.end() && job.restarts > 0)
    job.spares = std::max(0, static_cast<int>(job.nodes.size()) - needed->second);
}

void Jobs::add_from_peer(const KeyValues& message) { add(job_from_message(message)); }

void Jobs::add(Job job) {
  const std::string id = job.id;
  if (over_.contains(fmt::format("{}.{}", id, job.restarts))) return;
  count_spares(job);
  const auto at = c_.registry.find(id);
  if (at != c_.registry.end()) {
    Job& known = at->second;
    if (!known.batch_node.empty() && job.restarts < known.restarts) return;
    const bool new_script = job.batch.pid != 0 && job.batch != known.batch;
    if (!known.batch_node.empty() && (job.restarts > known.restarts || new_script)) {
      const int killed = ranks_.end_earlier_run(known);
      log::info("job {}: a new run begins on {}; {} processes of the one before are killed", id, compress_hostlist(job.nodes), killed);
    } else if (job.batch.pid == 0) {
      job.batch = known.batch;
    }
    job.steps = std::move(known.steps);
  } else {
    log::info("job {}: nodes {}, batch node {}", id, compress_hostlist(job.nodes), job.batch_node);
  }
  ending_.erase(id);
  last_verified_[id] = Clock::now();
  const Job& kept = c_.registry.insert_or_assign(id, std::move(job)).first->second;
  if (kept.batch.pid > 0 && kept.batch_node == c_.node) {
    batches_.erase(id);
    UniqueFd pidfd = open_process(kept.batch);
    if (!pidfd) {
      c_.loop.post([this, id] { batch_ended(id); });
    } else {
      Batch& b = batches_[id];
      b.pidfd = std::move(pidfd);
      b.watch = FdWatch(c_.loop, b.pidfd.get(), [this, id] { batch_ended(id); });
    }
  }
  timer_.repeat(look_period, [this] { look_after(); });
  c_.registry_changed();
}

void Jobs::batch_ended(const std::string& id) {
  batches_.erase(id);
  const auto at = c_.registry.find(id);
  if (at == c_.registry.end()) return;
  const int restarts = at->second.restarts;
  const KeyValues end = {{"VERB", "jobend"}, {"JOB", id}, {"RESTARTS", std::to_string(restarts)}};
  c_.ask_all(at->second.nodes, end, announce_deadline, [](const Context::Answers&) {});
  ended(id, restarts);
}

void Jobs::announce(const Job& job) {
  c_.ask_all(job.nodes, message_from_job(job), announce_deadline, [id = job.id](const Context::Answers& answers) {
    for (const auto& [node, answer] : answers)
      if (!answer) log::warn("job {}: the agent of {} does not answer", id, node);
  });
}

void Jobs::resume() {
  const Registry saved = c_.registry;
  for (const auto& [id, job] : saved) add(job);
  verify_all();
}

void Jobs::ended(const std::string& id, int restarts) {
  forget_run(id, restarts);
  const auto at = c_.registry.find(id);
  if (at == c_.registry.end() || at->second.restarts != restarts) return;
  if (!at->second.has_live_task()) return remove(id);
  // Slurm ends what is left. Where it does not, we do.
  ending_.insert(id);
  c_.loop.after(ending_grace, [this, id] {
    if (ending_.contains(id)) verify(id, true);
  });
}

// Somebody who was cut off may still speak of it.
void Jobs::forget_run(const std::string& id, int restarts) {
  if (over_.size() >= most_remembered) over_.erase(over_.begin());
  over_.insert(fmt::format("{}.{}", id, restarts));
}

void Jobs::remove(const std::string& id) {
  batches_.erase(id);
  ending_.erase(id);
  last_verified_.erase(id);
  ranks_.forget(id);
  if (c_.registry.erase(id) > 0) log::info("job {}: ended", id);
  if (c_.registry.empty()) timer_.cancel();
  removed_(id);
  c_.registry_changed();
}

void Jobs::heard_of(const std::string& from, const std::string& jobs) {
  std::istringstream words(jobs);
  std::set<std::string> named;
  for (std::string word; std::getline(words, word, ',');) {
    const size_t dot = word.find('.');
    const std::string id = word.substr(0, dot);
    named.insert(id);
    const auto at = c_.registry.find(id);
    const int restarts = dot == std::string::npos ? 0 : std::atoi(word.c_str() + dot + 1);
    if (at != c_.registry.end() && !at->second.batch_node.empty() && at->second.restarts >= restarts) continue;
    if (over_.contains(fmt::format("{}.{}", id, restarts))) continue;
    if (!verifying_.insert("ask " + id).second) continue;
    c_.mesh.ask(from, {{"VERB", "jobinfo"}, {"JOB", id}}, question_deadline, [this, id](const std::optional<KeyValues>& answer) {
      verifying_.erase("ask " + id);
      if (answer && get(*answer, "OK") == "1" && get(*answer, "JOB") == id) add_from_peer(*answer);
    });
  }
  // The batch node no longer has a job that we have: did we miss its end?
  for (const auto& [id, job] : c_.registry)
    if (job.batch_node == from && job.has_node(c_.node) && !named.contains(id) && Clock::now() - last_verified_[id] > look_period) verify(id, true);
}

void Jobs::verify_all() {
  for (const auto& [id, job] : c_.registry) verify(id, true);
}

void Jobs::verify(const std::string& id, bool returned) {
  if (!verifying_.insert(id).second) return;
  last_verified_[id] = Clock::now();
  c_.loop.work(Loop::Pool::slurm, [this, id, returned]() -> Loop::Action {
    try {
      return [this, id, returned, record = c_.slurm.job(id)] {
        verifying_.erase(id);
        verdict(id, record, returned);
      };
    } catch (const std::exception&) {
      return [this, id, returned] {
        verifying_.erase(id);
        if (returned) c_.loop.after(verify_retry, [this, id] { verify(id, true); });
      };
    }
  });
}

void Jobs::verdict(const std::string& id, const std::optional<JobRecord>& record, bool returned) {
  const auto at = c_.registry.find(id);
  if (at == c_.registry.end()) return;
  Job& job = at->second;
  if (record && still_runs_here(*record, job, c_.node)) {
    if (returned) kill_steps_killed_meanwhile(job);
    return;
  }
  if (record && record->state == "COMPLETING" && record->restarts == job.restarts) {
    c_.loop.after(ending_grace, [this, id] { verify(id, true); });
    return;
  }
  forget_run(id, job.restarts);
  const bool had_ranks = job.has_live_task();
  if (record && record->state == "RUNNING" && record->restarts == job.restarts) {
    const KeyValues out = {{"VERB", "left"}, {"JOB", id}, {"RESTARTS", std::to_string(job.restarts)}};
    c_.ask_all(job.nodes, out, announce_deadline, [](const Context::Answers&) {});
  }
  const int killed = ranks_.tear_down(job);
  if (had_ranks)
    events_.publish(job, {{"EVENT", "killed"},
                          {"EVIDENCE", fmt::format("job {} no longer owns this node ({}): {} processes killed", id,
                                                   record ? fmt::format("{}, restarts {}", record->state, record->restarts) : "ended", killed)}});
  if (had_ranks) ending_.insert(id);  // removed when the last of them has ended
  else remove(id);
}

void Jobs::kill_steps_killed_meanwhile(const Job& job) {
  if (job.steps.empty()) return;
  c_.ask_all(job.nodes, {{"VERB", "killed"}, {"JOB", job.id}}, question_deadline, [this, id = job.id](const Context::Answers& answers) {
    std::set<std::string> steps;
    for (const auto& [node, answer] : answers) {
      if (!answer) continue;
      std::istringstream words(get(*answer, "STEPS"));
      for (std::string step; std::getline(words, step, ',');) steps.insert(step);
    }
    for (const std::string& step : steps) {
      const auto at = c_.registry.find(id);
      if (at == c_.registry.end() || !at->second.steps.contains(step)) continue;
      ranks_.kill_here(id, step, [this, id, step](int killed) {
        const auto job_at = c_.registry.find(id);
        if (killed == 0 || job_at == c_.registry.end()) return;
        events_.publish(job_at->second, {{"EVENT", "killed"},
                                         {"STEP", step},
                                         {"EVIDENCE", fmt::format("step {}.{} was ended while this node was cut off: {} ranks killed", id, step, killed)}});
      });
    }
  });
}

void Jobs::look_after() {
  std::vector<std::string> idle;
  std::vector<Job> lost;
  for (const auto& [id, job] : c_.registry) {
    if (job.steps.empty() && Clock::now() - last_verified_[id] > idle_verify_period) idle.push_back(id);
    // Who found the node silent acts at once; this is for the case that it was lost, too.
    const auto condemned = c_.condemned.find(job.batch_node);
    if (condemned != c_.condemned.end() && Clock::now() - condemned->second.since > look_period && !ending_.contains(id) && is_for_me(job)) lost.push_back(job);
  }
  for (const std::string& id : idle) verify(id, false);
  for (const Job& job : lost) requeue(job);
}

void Jobs::set_needed(const std::string& id, int nodes) {
  if (needed_.size() >= most_remembered) needed_.erase(needed_.begin());
  needed_[id] = nodes;
}

void Jobs::left(const std::string& id, int restarts, const std::string& node) {
  const auto at = c_.registry.find(id);
  if (at == c_.registry.end() || at->second.restarts != restarts || at->second.batch_node == node) return;
  // As many nodes are needed as before.
  if (std::erase(at->second.nodes, node) > 0) at->second.spares = std::max(0, at->second.spares - 1);
  c_.registry_changed();
}

int Jobs::tear_down(const std::string& id, int restarts) {
  const auto at = c_.registry.find(id);
  if (at == c_.registry.end() || at->second.restarts != restarts) return 0;
  ending_.insert(id);
  return ranks_.tear_down(at->second);
}

}  // namespace mm::agent
