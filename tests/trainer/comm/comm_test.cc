// SPDX-License-Identifier: Apache-2.0
// The collectives against what plain loops give, on threads, and on real MPI through a second start of this program.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <thread>

#include "common/error.h"
#include "common/process.h"
#include "trainer/comm/comm.h"
#include "trainer/comm/world.h"

namespace mm::comm {
namespace {

using namespace std::chrono_literals;

// A number that has many bits, so that another order of summation shows.
double value(int rank, int64_t i) {
  return 1.0 / static_cast<double>(3 + 7 * rank + 11 * (i % 1013)) + static_cast<double>(i % 5) * 1e-3;
}

template <class T>
void check_large(Comm& comm, int64_t n) {
  std::vector<T> data(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) data[static_cast<size_t>(i)] = static_cast<T>(value(comm.rank(), i));
  comm.reduce_scatter(data.data(), n);
  comm.all_gather_parts(data.data(), n);
  for (int64_t i = 0; i < n; ++i) {
    T sum = static_cast<T>(value(0, i));
    for (int r = 1; r < comm.size(); ++r) sum += static_cast<T>(value(r, i));
    ASSERT_EQ(data[static_cast<size_t>(i)], sum) << "element " << i << " of " << n << " on rank " << comm.rank();
  }
}

void check_all(Comm& comm) {
  // Fewer elements than ranks, parts of unequal length, and parts that take several rounds.
  for (int64_t n : {0, 1, 3, 4099, 3'000'017}) check_large<double>(comm, n);
  check_large<float>(comm, 5'000'011);
  const std::vector<double> sum = comm.all_reduce({value(comm.rank(), 0), 1.0});
  double expected = value(0, 0);
  for (int r = 1; r < comm.size(); ++r) expected += value(r, 0);
  EXPECT_EQ(sum, (std::vector<double>{expected, static_cast<double>(comm.size())}));
  const auto text_of = [](int rank) {
    return std::string(static_cast<size_t>(rank) * 3'000'000, static_cast<char>('a' + rank));
  };
  const std::vector<std::string> texts = comm.all_gather(text_of(comm.rank()));
  ASSERT_EQ(texts.size(), static_cast<size_t>(comm.size()));
  for (int r = 0; r < comm.size(); ++r) EXPECT_TRUE(texts[static_cast<size_t>(r)] == text_of(r)) << r;
  EXPECT_EQ(comm.all_reduce({}).size(), 0U);
  comm.barrier();
}

void on_threads(int ranks, const std::function<void(Comm&)>& body) {
  std::vector<std::unique_ptr<Comm>> comms = thread_comms(ranks);
  std::vector<std::thread> threads;
  for (auto& comm : comms) threads.emplace_back([&] { body(*comm); });
  for (std::thread& t : threads) t.join();
}

TEST(Comm, PartsCoverWithoutOverlap) {
  for (int64_t n : {0, 1, 7, 8, 1000}) {
    int64_t at = 0;
    for (int r = 0; r < 7; ++r) {
      EXPECT_EQ(part_of(n, r, 7).begin, at);
      at = part_of(n, r, 7).end;
    }
    EXPECT_EQ(at, n);
  }
}

TEST(Comm, ThreadsAgreeWithPlainLoops) {
  for (int ranks : {1, 2, 3, 5}) on_threads(ranks, check_all);
}

TEST(Comm, SelfIsAGroupOfOne) {
  const std::unique_ptr<Comm> comm = self_comm();
  check_all(*comm);
  EXPECT_EQ(comm->bytes_sent(), 0U);
}

TEST(Comm, ALateRankIsNamed) {
  std::vector<std::unique_ptr<Comm>> comms = thread_comms(3);
  std::vector<std::string> messages(3);
  std::vector<std::thread> threads;
  for (size_t r : {0U, 2U})
    threads.emplace_back([&, r] {
      comms[r]->set_phase("step 7", 200ms);
      try {
        comms[r]->barrier();
      } catch (const Error& e) {
        EXPECT_EQ(e.status, exit_status::peer_lost);
        messages[r] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  for (size_t r : {0U, 2U}) {
    EXPECT_NE(messages[r].find("comm: barrier on rank " + std::to_string(r) +
                               ", phase step 7: no answer within 0.2 s from rank 1 on "),
              std::string::npos)
        << messages[r];
    EXPECT_EQ(messages[r].find("rank 0 on"), std::string::npos) << messages[r];
  }
}

TEST(Comm, RanksThatDisagreeAboutTheLengthFail) {
  std::vector<std::unique_ptr<Comm>> comms = thread_comms(2);
  std::vector<std::thread> threads;
  for (size_t r : {0U, 1U})
    threads.emplace_back([&, r] { EXPECT_THROW(comms[r]->all_reduce(std::vector<double>(1 + r)), Error); });
  for (std::thread& t : threads) t.join();
}

// ---- the same on MPI: this program starts itself under mpirun

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
  check_all(*comm);
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
