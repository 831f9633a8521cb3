// SPDX-License-Identifier: Apache-2.0
// The part of Jobs that requeues a job: one whose batch node is lost, or at a request; see daemon/jobs.h for the sequence.
#include <fmt/format.h>

#include "agent/daemon/jobs.h"
#include "common/error.h"
#include "common/hostlist.h"
#include "common/log.h"

namespace mm::agent {
namespace {

constexpr milliseconds tear_down_deadline{1000};
constexpr milliseconds end_deadline{10000};
constexpr milliseconds look_again{100};
constexpr milliseconds completing_period{500};
// Each slurmd refuses a credential of the job that is not younger, in whole seconds, than the order to end the job; Slurm then fails the
// job for good ("Job credential revoked"). So no run starts in the second in which the one before was ended.
constexpr milliseconds credential_pause{1100};
constexpr milliseconds pending_deadline{60000};
constexpr milliseconds retry_period{2000};

// What ends a job, as opposed to what happened to it.
bool is_over(const std::string& state, bool requested) {
  return state == "CANCELLED" || state == "COMPLETED" || state == "DEADLINE" || (!requested && state == "FAILED");
}

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
  if (requeueing_.insert(job.id).second) begin({job, fmt::format("its batch node {} is lost", job.batch_node), {}, false});
}

void Jobs::requeue_on_request(const Job& job, const std::vector<std::string>& exclude, const std::string& why) {
  if (job.batch_node.empty()) throw usage_error(fmt::format("job {}: it has no batch script, which a requeue would start", job.id));
  if (!job.requeue) throw usage_error(fmt::format("job {}: its job file says that it must not be requeued", job.id));
  if (requeueing_.insert(job.id).second) begin({job, why, exclude, true});
}

void Jobs::begin(const Requeue& r) {
  if (c_.site.dry_run) {
    log::info("dry run: would requeue job {}: {}", r.job.id, r.why);
    return;  // stays in requeueing_: said once
  }
  c_.loop.work(Loop::Pool::slurm, [this, r]() -> Loop::Action {
    const Job& job = r.job;
    try {
      const auto record = c_.slurm.job(job.id);
      const bool again = record && record->restarts == job.restarts;
      if (!record || is_over(record->state, r.requested) || (!again && record->state == "RUNNING"))
        return [this, r] { finish(r, "has ended or runs again already"); };
      // Which end it comes to is not told before it has come to it.
      if (r.requested && again && record->state == "COMPLETING")
        return [this, r] { c_.loop.after(completing_period, [this, r] { begin(r); }); };
      if (!job.requeue || !record->requeue) {
        if (r.requested) return [this, r] { finish(r, "must not be requeued, as Slurm was told"); };
        c_.slurm.cancel(job.id);
        return [this, r] { finish(r, "is cancelled: it must not be requeued"); };
      }
      c_.slurm.requeue(job.id, job.restarts);
    } catch (const std::exception& e) {
      return [this, r, why = std::string(e.what())] {
        log::warn("job {}: requeue: {}", r.job.id, why);
        retry_later(r);
      };
    }
    return [this, r] {
      if (!r.requested) tear_down_everywhere(r);
      c_.loop.after(credential_pause, [this, r] {
        if (r.requested) tear_down_everywhere(r);
        release(r, Clock::now() + pending_deadline);
      });
    };
  });
}

void Jobs::tear_down_everywhere(const Requeue& r) {
  const Job& job = r.job;
  std::vector<std::string> live;
  for (const std::string& n : job.nodes)
    if (c_.is_live(n)) live.push_back(n);
  tear_down(job.id, job.restarts);
  c_.ask_all(live, {{"VERB", "teardown"}, {"JOB", job.id}, {"RESTARTS", std::to_string(job.restarts)}}, tear_down_deadline,
             [](const Context::Answers&) {});
}

void Jobs::release(const Requeue& r, Clock::time_point give_up) {
  std::vector<std::string> leave = r.exclude;
  for (const std::string& n : r.job.nodes)
    if (!c_.is_live(n)) leave.push_back(n);
  c_.loop.work(Loop::Pool::slurm, [this, r, give_up, exclude = compress_hostlist(leave)]() -> Loop::Action {
    try {
      const int had = static_cast<int>(r.job.nodes.size());
      switch (c_.slurm.release(r.job.id, r.job.restarts, exclude, had - r.job.spares, had)) {
        case Slurm::Released::done:
          return [this, r, exclude] { finish(r, exclude.empty() ? "is requeued" : "is requeued without " + exclude); };
        case Slurm::Released::gone:
          return [this, r] { finish(r, "has ended"); };
        case Slurm::Released::not_yet:
          break;
      }
    } catch (const std::exception& e) {
      log::warn("job {}: release: {}", r.job.id, e.what());
    }
    return [this, r, give_up] {
      if (Clock::now() > give_up) {
        log::error("job {}: not pending {} s after its requeue", r.job.id, pending_deadline.count() / 1000);
        return retry_later(r);
      }
      c_.loop.after(look_again, [this, r, give_up] { release(r, give_up); });
    };
  });
}

void Jobs::finish(const Requeue& r, const std::string& how) {
  const Job& job = r.job;
  requeueing_.erase(job.id);
  const std::string text = fmt::format("job {}: {}; it {}", job.id, r.why, how);
  log::info("{}", text);
  events_.publish(job, {{"EVENT", "requeue"}, {"EVIDENCE", text}});
  const int needed = static_cast<int>(job.nodes.size()) - job.spares;
  set_needed(job.id, needed);
  const KeyValues end = {{"VERB", "jobend"}, {"JOB", job.id}, {"RESTARTS", std::to_string(job.restarts)}, {"NEEDED", std::to_string(needed)}};
  c_.ask_all(job.nodes, end, end_deadline, [](const Context::Answers&) {});
  ended(job.id, job.restarts);
}

void Jobs::retry_later(const Requeue& r) {
  c_.loop.after(retry_period, [this, r] {
    requeueing_.erase(r.job.id);
    if (r.requested) {
      if (requeueing_.insert(r.job.id).second) begin(r);
      return;
    }
    const auto at = c_.registry.find(r.job.id);
    if (at == c_.registry.end()) return;
    const Job job = at->second;
    if (c_.condemned.contains(job.batch_node) && is_for_me(job)) requeue(job);
  });
}

}  // namespace mm::agent
