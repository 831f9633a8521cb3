// SPDX-License-Identifier: Apache-2.0
// Whether this run of the job is still the one that Slurm knows. A node that was cut off may have missed that its job was
// requeued; a step that it then starts would land in the new run, beside that run's own.
#pragma once

#include <string>

namespace mm::run {

enum class Standing {
  ours,
  another,  // the job has ended, or runs again
  unknown,  // slurmctld does not answer
};
// `requeues` is the number of this run. Asks slurmctld, for 5 s at most.
Standing ask_standing(const std::string& job, int requeues);
// From what `scontrol show job --oneliner` printed.
Standing read_standing(int exit_code, const std::string& out, const std::string& err, int requeues);

}  // namespace mm::run
