// SPDX-License-Identifier: Apache-2.0
// When a running job's time limit is reached.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mm::agent {

struct RunEnd {
  int restarts = 0;  // which run of the job
  double time = 0;   // seconds since 1970; 0: no limit
};
// From what `scontrol show job --oneliner` printed; nothing where the job does not run.
std::optional<RunEnd> parse_run_end(std::string_view text);
// Asks slurmctld; nothing where that does not answer, either. slurm_conf: passed on as SLURM_CONF, unless empty.
std::optional<RunEnd> ask_run_end(const std::string& job, const std::string& slurm_conf);

}  // namespace mm::agent
