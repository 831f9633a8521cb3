// SPDX-License-Identifier: Apache-2.0
// Whether this run of the job is still the one that Slurm knows, and which nodes it still has. A node that was cut off may have missed that its
// job was requeued; a step that it then starts would land in the new run, beside that run's own. A node that was down has left the job for
// good, also when it is in service again: no step starts there.
#pragma once

#include <string>
#include <vector>

namespace mm::run {

struct Standing {
  enum class Kind {
    ours,
    another,  // the job has ended, or runs again
    unknown,  // slurmctld does not answer
  };
  Kind kind = Kind::unknown;
  std::vector<std::string> nodes;  // of the job, where it is ours
};
// `requeues` is the number of this run. Asks slurmctld, for 5 s at most.
Standing ask_standing(const std::string& job, int requeues);
// From what `scontrol show job --oneliner` printed.
Standing read_standing(int exit_code, const std::string& out, const std::string& err, int requeues);

}  // namespace mm::run
