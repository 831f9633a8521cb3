// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/unattended.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>

#include "common/error.h"
#include "common/log.h"

namespace mm::agent {
namespace {

constexpr milliseconds patience{5000};
constexpr std::chrono::seconds watched_lately{30};

// A step of the job that is known here uses the node.
bool uses(const Job& job, const std::string& node) {
  return std::any_of(job.steps.begin(), job.steps.end(), [&](const auto& s) {
    const auto& nodes = s.second.nodes;
    return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
  });
}

}  // namespace

void Unattended::event(const KeyValues& event) {
  const auto at = c_.registry.find(get(event, "JOB"));
  if (at == c_.registry.end()) return;
  const Job& job = at->second;
  if (job.batch_node != c_.node || !job.requeue) return;
  if (is_watched_(job.id)) last_watched_[job.id] = Clock::now();
  const std::string kind = get(event, "EVENT"), node = get(event, "NODE");
  if (kind == "incident") {
    const std::string part = get(event, "CLASS");
    if (get(event, "ACTION") != "drain" || part == "app" || part == "peer" || node == c_.node || !uses(job, node)) return;
    consider(job.id, node, get(event, "EVIDENCE"));
  } else if (kind == "exit") {
    const int status = static_cast<int>(get_int(event, "STATUS", -1));
    if (status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == exit_status::requeue)
      consider(job.id, "", "its ranks have saved, and ask for a requeue");
  }
}

void Unattended::consider(const std::string& id, const std::string& exclude, const std::string& why) {
  const auto lately = last_watched_.find(id);
  if (lately != last_watched_.end() && Clock::now() - lately->second < watched_lately) return;
  const Job job = c_.registry.at(id);
  if (!considered_.insert(fmt::format("{}.{}", id, job.restarts)).second) return;
  c_.loop.after(patience, [this, job, exclude, why] {
    if (is_watched_(job.id)) return;
    const auto now = c_.registry.find(job.id);
    if (now != c_.registry.end() && now->second.restarts != job.restarts) return;  // it runs again
    try {
      jobs_.requeue_on_request(job, exclude.empty() ? std::vector<std::string>() : std::vector<std::string>{exclude}, why);
    } catch (const Error& e) {
      log::warn("{}", e.what());
    }
  });
}

void Unattended::job_ended(const std::string& job) {
  last_watched_.erase(job);
  std::erase_if(considered_, [&](const std::string& run) { return run.starts_with(job + "."); });
}

}  // namespace mm::agent
