// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/world.h"

#include <fmt/format.h>

#include <cstdlib>
#include <initializer_list>

#include "common/error.h"
#include "trainer/comm/mpi_transport.h"

namespace mm::comm {
namespace {

// The first of the variables that is set to a number, else 0.
int first_number(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* text = std::getenv(name); text != nullptr && std::atoi(text) > 0) return std::atoi(text);
  return 0;
}

bool is_set(const char* name) {
  return std::getenv(name) != nullptr;
}

}  // namespace

Launch launch_from_environment() {
  Launch launch;
  launch.with_mpi = is_set("OMPI_COMM_WORLD_SIZE") || is_set("PMIX_RANK") || is_set("PMI_RANK");
  launch.ranks = first_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"});
  launch.local_ranks = first_number({"OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"});
  if (launch.ranks == 0 && !launch.with_mpi) launch.ranks = 1;
  if (launch.local_ranks == 0) launch.local_ranks = 1;
  return launch;
}

std::unique_ptr<Comm> open_world() {
  const Launch launch = launch_from_environment();
  if (launch.ranks == 1) return self_comm();
  if (!launch.with_mpi)
    throw usage_error(fmt::format("srun started {} tasks that do not know of each other: use srun --mpi=pmix", launch.ranks));
  std::unique_ptr<Transport> transport = mpi_transport();
  if (launch.ranks > 1 && transport->size() != launch.ranks)
    throw usage_error(fmt::format("the launcher started {} ranks and MPI joins {}: use srun --mpi=pmix, or mpirun",
                                  launch.ranks, transport->size()));
  return comm_over(std::move(transport));
}

void close_world(int status) {
  finalize_mpi(status);
}

}  // namespace mm::comm
