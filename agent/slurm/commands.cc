// SPDX-License-Identifier: Apache-2.0
#include "agent/slurm/commands.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/error.h"
#include "common/hostlist.h"
#include "common/log.h"
#include "common/process.h"

namespace mm::agent {
namespace {

constexpr std::chrono::milliseconds command_deadline{15000};

std::string first_line(std::string text) {
  text = text.substr(0, text.find('\n'));
  return text;
}

// scontrol takes one pair of quotes off.
std::string quoted(const std::string& reason) { return "reason=\"" + reason + "\""; }

}  // namespace

const std::string& reason_to_give(const NodeRecord& node, const std::string& ours) { return node.reason.empty() ? ours : node.reason; }

std::string merge_hostlists(const std::string& a, const std::string& b) {
  std::vector<std::string> all = expand_hostlist(a);
  for (std::string& host : expand_hostlist(b))
    if (std::find(all.begin(), all.end(), host) == all.end()) all.push_back(std::move(host));
  return compress_hostlist(all);
}

std::string Slurm::run(const std::vector<std::string>& argv) const {
  std::vector<std::string> environment;
  if (!slurm_conf_.empty()) environment.push_back("SLURM_CONF=" + slurm_conf_);
  const CommandResult result = run_command(argv, command_deadline, environment);
  if (result.ok()) return result.out;
  const std::string why = result.timed_out ? fmt::format("no answer within {} s", command_deadline.count() / 1000)
                                           : first_line(result.err.empty() ? result.out : result.err);
  throw Error(exit_status::internal, fmt::format("slurm: {}: {}", fmt::join(argv, " "), why));
}

void Slurm::change(const std::vector<std::string>& argv) const {
  if (dry_run_) log::info("dry run: would run: {}", fmt::join(argv, " "));
  else run(argv);
}

std::string Slurm::nodes_text(const std::string& list) const {
  std::vector<std::string> argv = {"scontrol", "show", "node", "--oneliner"};
  if (!list.empty()) argv.push_back(list);
  return run(argv);
}

std::string Slurm::config_text() const { return run({"scontrol", "show", "config"}); }

NodeRecord Slurm::node(const std::string& name) const {
  std::vector<NodeRecord> found = nodes(name);
  if (found.empty()) throw Error(exit_status::internal, fmt::format("slurm: node {}: not known to Slurm", name));
  return std::move(found.front());
}

std::optional<JobRecord> Slurm::job(const std::string& id) const {
  try {
    return parse_job(run({"scontrol", "show", "job", "--oneliner", id}));
  } catch (const Error& e) {
    if (std::string_view(e.what()).find("Invalid job id") != std::string_view::npos) return std::nullopt;
    throw;
  }
}

std::string Slurm::drain(const std::string& name, const std::string& reason) const {
  const NodeRecord now = node(name);
  if (now.drained()) return fmt::format("was drained already (reason: {})", now.reason);
  change({"scontrol", "update", "nodename=" + name, "state=drain", quoted(reason_to_give(now, reason))});
  if (dry_run_) return "would be drained (dry run): " + reason_to_give(now, reason);
  return now.reason.empty() ? "drained" : fmt::format("drained under the reason that it had: {}", now.reason);
}

std::string Slurm::undrain(const std::string& name) const {
  const NodeRecord now = node(name);
  if (!now.drained()) return "is not drained";
  if (!now.reason.starts_with(reason_mark)) throw Error(exit_status::found, fmt::format("slurm: node {}: drained by somebody else: {}", name, now.reason));
  change({"scontrol", "update", "nodename=" + name, "state=resume"});
  return "in service again";
}

std::string Slurm::drain_and_down(const std::string& name, const std::string& reason) const {
  std::string done = drain(name, reason);
  const NodeRecord now = node(name);
  if (now.down()) return done + ", was down already";
  change({"scontrol", "update", "nodename=" + name, "state=down", quoted(reason_to_give(now, reason))});
  return done + ", set down";
}

void Slurm::requeue(const std::string& id, int restarts) const {
  const auto now = job(id);
  if (!now || now->restarts != restarts || now->state == "PENDING" || now->state == "COMPLETED" || now->state == "CANCELLED") return;
  change({"scontrol", "requeue", id});
}

Slurm::Released Slurm::release(const std::string& id, int restarts, const std::string& exclude, int least_nodes, int most_nodes) const {
  const auto now = job(id);
  if (!now || now->state == "CANCELLED" || now->state == "COMPLETED" || now->state == "FAILED") return Released::gone;
  if (now->state == "RUNNING" && now->restarts > restarts) return Released::done;
  if (now->state != "PENDING") return Released::not_yet;
  std::vector<std::string> argv = {"scontrol", "update", "jobid=" + id, "StartTime=now",
                                   "ExcNodeList=" + merge_hostlists(now->excluded, exclude), "ReqNodeList="};
  // Slurm would start it on as many nodes as it had in the end, less those that it lost on the way.
  if (least_nodes > 0) {
    argv.push_back(least_nodes < most_nodes ? fmt::format("NumNodes={}-{}", least_nodes, most_nodes) : fmt::format("NumNodes={}", least_nodes));
    const int tasks = now->tasks_per_node > 0 ? now->tasks_per_node * least_nodes : now->tasks * least_nodes / most_nodes;
    if (tasks > 0 && tasks < now->tasks) {
      argv.push_back(fmt::format("NumTasks={}", tasks));
      argv.push_back(fmt::format("NumCPUs={}", tasks * std::max(1, now->cpus_per_task)));
    }
  }
  change(argv);
  return Released::done;
}

void Slurm::cancel(const std::string& id) const { change({"scancel", id}); }

}  // namespace mm::agent
