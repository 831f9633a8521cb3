// SPDX-License-Identifier: Apache-2.0
// Sums of vectors over the ranks of one node: ours, with private and with shared memory, MPI_Allreduce as peer, and as limit
// the same arithmetic and copying within a rank's own memory. Run under mpirun; prints on rank 0.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "trainer/comm/world.h"
#include "trainer/tensor/region.h"

namespace mm::comm {
namespace {

double seconds_of(Comm& comm, const std::function<void()>& body) {
  comm.barrier();
  const auto begin = std::chrono::steady_clock::now();
  body();
  // The slowest rank counts.
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  comm.all_reduce_max(&seconds, 1);
  return seconds;
}

void bench(Comm& comm, int64_t n, int pairs) {
  const size_t bytes = static_cast<size_t>(n) * sizeof(float);
  const tensor::Region region(bytes);
  float* const shared = static_cast<float*>(region.data());
  const std::unique_ptr<Shared> share = comm.share(shared, bytes);
  std::vector<float> mine(static_cast<size_t>(n), 1.0F), peers(static_cast<size_t>(n), 1.0F),
      other(static_cast<size_t>(n), 1.0F);
  const Range own = part_of(n, comm.rank(), comm.size());
  std::vector<double> in_place, ours, mpi, limit;
  for (int k = 0; k < pairs; ++k) {
    std::fill(shared, shared + n, 1.0F);
    in_place.push_back(seconds_of(comm, [&] { comm.all_reduce(shared, n); }));
    ours.push_back(seconds_of(comm, [&] { comm.all_reduce(mine.data(), n); }));
    mpi.push_back(seconds_of(comm, [&] {
      if (MPI_Allreduce(MPI_IN_PLACE, peers.data(), static_cast<int>(n), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS)
        std::abort();
    }));
    limit.push_back(seconds_of(comm, [&] {
      for (int r = 1; r < comm.size(); ++r)
        for (int64_t i = own.begin; i < own.end; ++i) mine[static_cast<size_t>(i)] += other[static_cast<size_t>(i)];
      std::copy(other.begin(), other.begin() + own.begin, mine.begin());
      std::copy(other.begin() + own.end, other.end(), mine.begin() + own.end);
    }));
    std::fill(mine.begin(), mine.end(), 1.0F);
    std::fill(peers.begin(), peers.end(), 1.0F);
  }
  if (comm.rank() != 0) return;
  const auto best = [](const std::vector<double>& v) { return 1e3 * *std::min_element(v.begin(), v.end()); };
  std::printf(
      "%7.3f MB, %d ranks: ours %7.3f ms, in shared memory %7.3f ms; MPI_Allreduce %7.3f ms (%.2f x, %.2f x); "
      "limit %7.3f ms (%.2f of it)\n",
      4e-6 * static_cast<double>(n), comm.size(), best(ours), best(in_place), best(mpi), best(mpi) / best(ours),
      best(mpi) / best(in_place), best(limit), best(limit) / best(in_place));
}

}  // namespace
}  // namespace mm::comm

int main() {
  const std::unique_ptr<mm::comm::Comm> comm = mm::comm::open_world();
  for (const int64_t n : {int64_t{1000}, int64_t{250'000}, int64_t{2'500'000}, int64_t{23'250'000}})
    mm::comm::bench(*comm, n, 9);
  mm::comm::close_world(0);
}
