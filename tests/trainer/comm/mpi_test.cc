// SPDX-License-Identifier: Apache-2.0
// The collectives on real MPI: this program starts itself under mpirun.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "common/error.h"
#include "common/process.h"
#include "tests/trainer/comm/checks.h"
#include "trainer/comm/world.h"

namespace mm::comm {
namespace {

using namespace std::chrono_literals;

std::vector<std::string> mpirun(int ranks, const std::string& filter) {
  char self[4096];
  const ssize_t n = ::readlink("/proc/self/exe", self, sizeof self - 1);
  return {"mpirun",
          "-n",
          std::to_string(ranks),
          "--oversubscribe",
          "--allow-run-as-root",
          std::string(self, static_cast<size_t>(n)),
          "--gtest_also_run_disabled_tests",
          "--gtest_filter=" + filter};
}

TEST(Mpi, FourRanksAgreeWithPlainLoops) {
  const CommandResult r = run_command(mpirun(4, "UnderMpi.DISABLED_Collectives"), 120s);
  EXPECT_EQ(r.exit_code, 0) << r.out << r.err;
}

TEST(Mpi, APeerThatNeverComesIsNamed) {
  const CommandResult r = run_command(mpirun(3, "UnderMpi.DISABLED_LatePeer"), 120s);
  EXPECT_EQ(r.exit_code, 76) << r.out << r.err;
  EXPECT_NE(r.err.find("comm: reduce_scatter on rank 0, phase step 3: no answer within 0.5 s from rank 2 on "),
            std::string::npos)
      << r.err;
}

TEST(Mpi, TasksThatMpiDoesNotJoinAreRefused) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"})
    if (std::getenv(name) != nullptr) GTEST_SKIP() << "runs under an MPI launcher";
  ::setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  EXPECT_THROW(open_world(), Error);
  ::setenv("SLURM_STEP_NUM_TASKS", "1", 1);
  EXPECT_EQ(open_world()->size(), 1);
  ::unsetenv("SLURM_STEP_NUM_TASKS");
}

TEST(UnderMpi, DISABLED_Collectives) {
  const std::unique_ptr<Comm> comm = open_world();
  ASSERT_EQ(comm->size(), 4);
  check_collectives(*comm, 5'000'011);  // several rounds
  for (int seed = 0; seed < 4; ++seed) check_flights(*comm, seed, 60);
  EXPECT_GT(comm->bytes_sent(), 0U);
  close_world(0);
}

TEST(UnderMpi, DISABLED_LatePeer) {
  const std::unique_ptr<Comm> comm = open_world();
  std::vector<double> data(100'000);
  comm->set_phase("step 3", comm->rank() == 1 ? 60s : 500ms);
  if (comm->rank() == 2) ::pause();  // ends when mpirun ends the others
  try {
    comm->reduce_scatter(data.data(), 100'000);
  } catch (const Error& e) {
    ::dprintf(2, "%s\n", e.what());
    ::_exit(e.status);
  }
}

}  // namespace
}  // namespace mm::comm
