// SPDX-License-Identifier: Apache-2.0
#include "agent/run/standing.h"

#include <cstdlib>

#include "common/error.h"
#include "common/hostlist.h"
#include "common/process.h"

namespace mm::run {

Standing read_standing(int exit_code, const std::string& out, const std::string& err, int requeues) {
  if (exit_code != 0) return {err.find("Invalid job id") != std::string::npos ? Standing::Kind::another : Standing::Kind::unknown, {}};
  const size_t at = out.find(" Restarts="), state = out.find(" JobState=RUNNING");
  if (at == std::string::npos) return {};
  if (std::atoi(out.c_str() + at + 10) != requeues || state == std::string::npos) return {Standing::Kind::another, {}};
  const size_t nodes = out.find(" NodeList=");
  if (nodes == std::string::npos) return {Standing::Kind::ours, {}};
  const std::string rest = out.substr(nodes + 10);
  return {Standing::Kind::ours, expand_hostlist(rest.substr(0, rest.find_first_of(" \n")))};
}

Standing ask_standing(const std::string& job, int requeues) {
  try {
    const CommandResult r = run_command({"scontrol", "show", "job", "--oneliner", job}, std::chrono::seconds(5));
    return read_standing(r.timed_out ? -1 : r.exit_code, r.out, r.err, requeues);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace mm::run
