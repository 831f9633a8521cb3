// SPDX-License-Identifier: Apache-2.0
#include "agent/run/standing.h"

#include <cstdlib>

#include "common/error.h"
#include "common/process.h"

namespace mm::run {

Standing read_standing(int exit_code, const std::string& out, const std::string& err, int requeues) {
  if (exit_code != 0) return err.find("Invalid job id") != std::string::npos ? Standing::another : Standing::unknown;
  const size_t at = out.find(" Restarts="), state = out.find(" JobState=RUNNING");
  if (at == std::string::npos) return Standing::unknown;
  const bool same_run = std::atoi(out.c_str() + at + 10) == requeues;
  return same_run && state != std::string::npos ? Standing::ours : Standing::another;
}

Standing ask_standing(const std::string& job, int requeues) {
  try {
    const CommandResult r = run_command({"scontrol", "show", "job", "--oneliner", job}, std::chrono::seconds(5));
    return read_standing(r.timed_out ? -1 : r.exit_code, r.out, r.err, requeues);
  } catch (const Error&) {
    return Standing::unknown;
  }
}

}  // namespace mm::run
