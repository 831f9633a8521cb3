// SPDX-License-Identifier: Apache-2.0
// The group of all ranks that the launcher started: MPI where there is more than one, else this process alone, without MPI.
#pragma once

#include <memory>

#include "trainer/comm/comm.h"

namespace mm::comm {

// What the environment of the launcher says.
struct Launch {
  bool with_mpi = false;  // mpirun, or srun --mpi=pmix or pmi2
  int ranks = 1;          // 0: not stated
  int local_ranks = 1;    // of them on this node
};
Launch launch_from_environment();

// Throws a usage Error where srun started several tasks that MPI does not join.
std::unique_ptr<Comm> open_world();
// Leaves MPI in an orderly way: collective, only after success or an end that all ranks agree on. Where a peer may be gone it
// would hang: then leave by _exit. Peers that do not come within 30 s are no longer waited for: the process ends with `status`.
void close_world(int status);

}  // namespace mm::comm
