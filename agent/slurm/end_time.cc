// SPDX-License-Identifier: Apache-2.0
#include "agent/slurm/end_time.h"

#include <charconv>
#include <ctime>

#include "agent/slurm/parse.h"
#include "common/process.h"

namespace mm::agent {
namespace {

// "2026-11-30T09:14:28", in this machine's time zone, as seconds since 1970; 0 for anything else, such as "Unknown".
double time_of(const std::string& text) {
  tm when = {};
  when.tm_isdst = -1;
  const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &when);
  return end != nullptr && *end == '\0' ? static_cast<double>(::mktime(&when)) : 0;
}

}  // namespace

std::optional<RunEnd> parse_run_end(std::string_view text) {
  const auto job = parse_job(text);
  if (!job || job->state != "RUNNING") return std::nullopt;
  constexpr std::string_view key = " EndTime=";
  const size_t at = text.find(key);
  if (at == std::string_view::npos) return RunEnd{job->restarts, 0};
  const std::string_view rest = text.substr(at + key.size());
  return RunEnd{job->restarts, time_of(std::string(rest.substr(0, rest.find_first_of(" \n"))))};
}

std::optional<RunEnd> ask_run_end(const std::string& job, const std::string& slurm_conf) {
  std::vector<std::string> environment;
  if (!slurm_conf.empty()) environment.push_back("SLURM_CONF=" + slurm_conf);
  const CommandResult done = run_command({"scontrol", "show", "job", "--oneliner", job}, std::chrono::seconds(15), environment);
  return done.ok() ? parse_run_end(done.out) : std::nullopt;
}

}  // namespace mm::agent
