// SPDX-License-Identifier: Apache-2.0
#include "agent/run/srun_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "agent/recovery/exits.h"
#include "common/error.h"
#include "common/hostlist.h"

namespace mm::run {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// "0-1,4" -> 0 1 4; empty where it is something else.
std::vector<int> numbers(std::string_view list) {
  std::vector<int> out;
  try {
    for (const std::string& n : expand_hostlist(fmt::format("[{}]", list))) {
      int value = 0;
      if (std::from_chars(n.data(), n.data() + n.size(), value).ec != std::errc()) return {};
      out.push_back(value);
    }
  } catch (const Error&) {
    return {};
  }
  return out;
}

// "Exited with exit code 3", "Killed", "Segmentation fault (core dumped)" -> a status as from wait(2).
std::optional<int> wait_status(std::string_view text) {
  constexpr std::string_view exited = "Exited with exit code ";
  if (text.starts_with(exited)) {
    int code = 0;
    text.remove_prefix(exited.size());
    if (std::from_chars(text.data(), text.data() + text.size(), code).ec != std::errc()) return std::nullopt;
    return recovery::wait_status_of({code & 0xff, 0});
  }
  text = text.substr(0, text.find(" (core dumped)"));
  for (int s = 1; s < 65; ++s) {
    const char* name = ::sigdescr_np(s);
    if (name != nullptr && text == name) return s;
  }
  return std::nullopt;
}

// "node[1-2]: tasks 0-1: Killed"
std::vector<recovery::RankExit> ended_tasks(std::string_view text) {
  const size_t colon = text.find(": task");
  if (colon == std::string_view::npos) return {};
  const std::string_view nodes = text.substr(0, colon);
  std::string_view rest = text.substr(colon + 6);
  rest.remove_prefix(rest.starts_with('s') ? 1 : 0);
  const size_t end = rest.find(": ");
  if (!rest.starts_with(' ') || end == std::string_view::npos) return {};
  const auto status = wait_status(rest.substr(end + 2));
  if (!status) return {};
  const bool one = !has(nodes, "[") && !has(nodes, ",");
  std::vector<recovery::RankExit> out;
  for (const int rank : numbers(rest.substr(1, end - 1))) out.push_back({rank, one ? std::string(nodes) : "", *status});
  return out;
}

std::optional<std::string> step_of(std::string_view text, const std::string& job_id) {
  const std::string mark = "StepId=" + job_id + ".";
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = text.substr(at + mark.size());
  const size_t end =
      static_cast<size_t>(std::find_if(rest.begin(), rest.end(), [](char c) { return c < '0' || c > '9'; }) - rest.begin());
  return end == 0 ? std::nullopt : std::optional<std::string>(rest.substr(0, end));
}

}  // namespace

std::vector<std::string> srun_command(const Plan& plan, const std::vector<std::string>& nodes) {
  std::vector<std::string> out = {
      "srun", "--overlap", fmt::format("--nodes={}", nodes.size()),
      fmt::format("--ntasks={}", nodes.size() * static_cast<size_t>(plan.tasks_per_node)),
      fmt::format("--ntasks-per-node={}", plan.tasks_per_node),
      // A rank's death is told by the agents, or by srun itself; either way mm-run acts, and faster.
      "--kill-on-bad-exit=0", "--quit-on-interrupt"};
  if (!plan.plugin) out.push_back("--nodelist=" + compress_hostlist(nodes));
  if (plan.cpus_per_task) out.push_back(fmt::format("--cpus-per-task={}", *plan.cpus_per_task));
  const auto chosen = [&](const std::string& a) { return a.starts_with("--mpi"); };
  if (std::none_of(plan.srun_arguments.begin(), plan.srun_arguments.end(), chosen)) out.push_back("--mpi=pmix");
  // Another layout than the job's: the plugin gives the ranks their places in it, and the trainer reads it from its arguments.
  if (!plan.layout.empty() && plan.plugin) out.push_back(fmt::format("--mm-train={},hang_timeout={}", plan.layout, plan.hang_timeout));
  out.insert(out.end(), plan.srun_arguments.begin(), plan.srun_arguments.end());
  out.insert(out.end(), plan.command.begin(), plan.command.end());
  if (!plan.layout.empty() && std::filesystem::path(plan.command.front()).filename() == "mm-trainer")
    for (size_t begin = 0; begin < plan.layout.size();) {
      const size_t comma = std::min(plan.layout.find(',', begin), plan.layout.size());
      out.insert(out.end(), {"--set", "parallel." + plan.layout.substr(begin, comma - begin)});
      begin = comma + 1;
    }
  return out;
}

std::string hostfile(const Plan& plan, const std::vector<std::string>& nodes) {
  std::string out;
  for (const std::string& node : nodes)
    for (int i = 0; i < plan.tasks_per_node; ++i) out += node + "\n";
  return out;
}

std::vector<std::string> srun_environment(const char* const* own, const std::vector<std::string>& nodes, int restarts,
                                          int step_pipe, std::optional<int> hostfile) {
  std::vector<std::string> out;
  bool fence = false;
  for (; *own != nullptr; ++own) {
    const std::string_view v = *own;
    fence = fence || v.starts_with("SLURM_PMIX_FENCE=");
    const bool replaced = v.starts_with("MM_NODES=") || v.starts_with("MM_RESTARTS=") || v.starts_with("MM_RUN_STEP_FD=") ||
                          v.starts_with("SLURM_HOSTFILE=") || v.starts_with("SLURM_DISTRIBUTION=");
    if (!replaced) out.emplace_back(v);
  }
  out.push_back("MM_NODES=" + compress_hostlist(nodes));
  out.push_back(fmt::format("MM_RESTARTS={}", restarts));
  out.push_back(fmt::format("MM_RUN_STEP_FD={}", step_pipe));
  if (hostfile) out.push_back(fmt::format("SLURM_HOSTFILE=/proc/self/fd/{}", *hostfile));
  // The default, a tree, releases early now and then, and 3 % of launches die in MPI_Init.
  if (!fence) out.push_back("SLURM_PMIX_FENCE=ring");
  return out;
}

SrunNews read_srun_line(std::string_view line, const std::string& job_id) {
  SrunNews news;
  if (!line.starts_with("srun: ") && !line.starts_with("slurmstepd: ")) return news;
  news.step = step_of(line, job_id);
  constexpr std::string_view error = "srun: error: ";
  if (!line.starts_with(error)) return news;
  const std::string_view text = line.substr(error.size());
  news.exits = ended_tasks(text);
  if (!news.exits.empty()) return news;
  using recovery::SrunFailure;
  if (has(text, "Unable to contact slurm controller") || has(text, "Unable to establish controller machine")) {
    news.failure = SrunFailure::controller;
  } else if (has(text, "Unable to create step") || has(text, "Unable to confirm allocation") || has(text, " has expired")) {
    const bool silent =
        has(text, "Socket timed out") || has(text, "Zero Bytes were transmitted") || has(text, "Connection refused");
    const bool full = has(text, "Memory required by task is not available") || has(text, "Requested nodes are busy");
    news.failure = silent ? SrunFailure::controller : full ? SrunFailure::not_now : SrunFailure::refused;
  } else if (has(text, "Task launch for ") && has(text, " failed on node ")) {
    news.failure = SrunFailure::launch;
    const std::string_view rest = text.substr(text.find(" failed on node ") + 16);
    news.node = rest.substr(0, rest.find(':'));
  }
  if (news.failure != SrunFailure::none) news.message = text;
  return news;
}

}  // namespace mm::run
