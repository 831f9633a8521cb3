// SPDX-License-Identifier: Apache-2.0
// The part of Jobs that requeues a job whose batch node is lost; see daemon/jobs.h for the sequence.
#include <fmt/format.h>

#include "agent/daemon/jobs.h"
#include "common/hostlist.h"
#include "common/log.h"

namespace mm::agent {
namespace {

constexpr milliseconds tear_down_deadline{1000};
constexpr milliseconds end_deadline{10000};
constexpr milliseconds look_again{100};
// Each slurmd refuses a credential of the job that is not younger, in whole seconds, than the order to end the job; Slurm then fails the
// job for good ("Job credential revoked"). So no run starts in the second in which the one before was ended.
constexpr milliseconds credential_pause{1100};
constexpr milliseconds pending_deadline{60000};
constexpr milliseconds retry_period{2000};

}  // namespace

// The first node of the job that is not silent acts.
bool Jobs::is_for_me(const Job& job) const {
  for (const std::string& n : job.nodes)
    if (c_.is_live(n)) return n == c_.node;
  return false;
}

void Jobs::batch_node_lost(const std::string& node) {
  std::vector<Job> lost;
  for (const auto& [id, job] : c_.registry)
    if (job.batch_node == node && !ending_.contains(id)) lost.push_back(job);
  for (const Job& job : lost) requeue(job);
}

void Jobs::requeue(const Job& job) {
  if (!requeueing_.insert(job.id).second) return;
  if (c_.site.dry_run) {
    log::info("dry run: would requeue job {}: its batch node {} is lost", job.id, job.batch_node);
    return;  // stays in requeueing_: said once
  }
  c_.loop.work(Loop::Pool::slurm, [this, job]() -> Loop::Action {
    try {
      const auto record = c_.slurm.job(job.id);
      const bool again = record && record->restarts == job.restarts;
      const bool over = !record || record->state == "CANCELLED" || record->state == "COMPLETED" || record->state == "FAILED";
      if (over || (!again && record->state == "RUNNING"))
        return [this, job] { finish(job, "has ended or runs again already"); };
      if (!job.requeue || !record->requeue) {
        c_.slurm.cancel(job.id);
        return [this, job] { finish(job, "is cancelled: it must not be requeued"); };
      }
      c_.slurm.requeue(job.id, job.restarts);
    } catch (const std::exception& e) {
      return [this, job, why = std::string(e.what())] {
        log::warn("job {}: requeue: {}", job.id, why);
        retry_later(job.id);
      };
    }
    return [this, job] {
      const KeyValues order = {{"VERB", "teardown"}, {"JOB", job.id}, {"RESTARTS", std::to_string(job.restarts)}};
      std::vector<std::string> live;
      for (const std::string& n : job.nodes)
        if (c_.is_live(n)) live.push_back(n);
      tear_down(job.id, job.restarts);
      c_.ask_all(live, order, tear_down_deadline, [](const Context::Answers&) {});
      c_.loop.after(credential_pause, [this, job] { release(job, Clock::now() + pending_deadline); });
    };
  });
}

void Jobs::release(const Job& job, Clock::time_point give_up) {
  std::vector<std::string> lost;
  for (const std::string& n : job.nodes)
    if (!c_.is_live(n)) lost.push_back(n);
  c_.loop.work(Loop::Pool::slurm, [this, job, give_up, exclude = compress_hostlist(lost)]() -> Loop::Action {
    try {
      const int had = static_cast<int>(job.nodes.size());
      switch (c_.slurm.release(job.id, job.restarts, exclude, had - job.spares, had)) {
        case Slurm::Released::done:
          return [this, job, exclude] { finish(job, "is requeued without " + exclude); };
        case Slurm::Released::gone:
          return [this, job] { finish(job, "has ended"); };
        case Slurm::Released::not_yet:
          break;
      }
    } catch (const std::exception& e) {
      log::warn("job {}: release: {}", job.id, e.what());
    }
    return [this, job, give_up] {
      if (Clock::now() > give_up) {
        log::error("job {}: not pending {} s after its requeue", job.id, pending_deadline.count() / 1000);
        return retry_later(job.id);
      }
      c_.loop.after(look_again, [this, job, give_up] { release(job, give_up); });
    };
  });
}

void Jobs::finish(const Job& job, const std::string& how) {
  requeueing_.erase(job.id);
  const std::string text = fmt::format("job {}: its batch node {} is lost; it {}", job.id, job.batch_node, how);
  log::info("{}", text);
  events_.publish(job, {{"EVENT", "requeue"}, {"EVIDENCE", text}});
  const int needed = static_cast<int>(job.nodes.size()) - job.spares;
  set_needed(job.id, needed);
  const KeyValues end = {{"VERB", "jobend"}, {"JOB", job.id}, {"RESTARTS", std::to_string(job.restarts)}, {"NEEDED", std::to_string(needed)}};
  c_.ask_all(job.nodes, end, end_deadline, [](const Context::Answers&) {});
  ended(job.id, job.restarts);
}

void Jobs::retry_later(const std::string& id) {
  c_.loop.after(retry_period, [this, id] {
    requeueing_.erase(id);
    const auto at = c_.registry.find(id);
    if (at == c_.registry.end()) return;
    const Job job = at->second;
    if (c_.condemned.contains(job.batch_node) && is_for_me(job)) requeue(job);
  });
}

}  // namespace mm::agent
