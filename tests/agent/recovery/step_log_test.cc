// SPDX-License-Identifier: Apache-2.0
#include "agent/recovery/step_log.h"

#include <gtest/gtest.h>

#include <vector>

namespace mm::recovery {
namespace {

std::string explained(const std::vector<std::string>& lines) {
  StepLog log;
  for (const std::string& line : lines) log.add(line);
  const auto found = log.explain();
  return found ? found->klass + " " + found->code + ", " + found->kind() : "";
}

TEST(StepLog, TellsMistakesFromHardware) {
  EXPECT_EQ(explained({"step 1 loss 2.0", "warning: something"}), "");
  EXPECT_EQ(explained({"3: Traceback (most recent call last):", "3:   File \"train.py\", line 3, in <module>", "3: ValueError: wrong shape"}), "app python, a user's mistake");
  EXPECT_EQ(explained({"[rank3]: Traceback (most recent call last):", "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."}),
            "app cuda_out_of_memory, a user's mistake");
  EXPECT_EQ(explained({"Traceback (most recent call last):", "RuntimeError: CUDA error: uncorrectable ECC error encountered"}), "gpu cuda_ecc, hardware");
  EXPECT_EQ(explained({"n1:12:99 [0] ibvwrap.c NCCL WARN NET/IB : Got completion from peer 10.0.0.7 with status=12 opcode=0 len=0 vendor err 129"}), "nic ib_completion, hardware");
  EXPECT_EQ(explained({"slurmstepd: error: Detected 1 oom_kill event in StepId=11.0. Some of the step tasks have been OOM Killed."}), "memory oom, a limit or a service");
  EXPECT_EQ(explained({"slurmstepd: error: *** STEP 11.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***"}), "slurm time_limit, a limit or a service");
  EXPECT_EQ(explained({"OSError: [Errno 28] No space left on device: 'x'"}), "storage disk_full, a limit or a service");
  EXPECT_EQ(explained({"MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD"}), "app mpi_abort, a user's mistake");
}

// All ranks time out because of one: its line explains, wherever it stands.
TEST(StepLog, TheCauseAmongItsConsequences) {
  const std::string timeout = "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE) ran for 600000 milliseconds";
  EXPECT_EQ(explained({timeout, timeout}), "peer nccl_timeout, a lost peer");
  EXPECT_EQ(explained({timeout, "RuntimeError: CUDA error: uncorrectable ECC error encountered", timeout}), "gpu cuda_ecc, hardware");
  EXPECT_EQ(explained({timeout, "Traceback (most recent call last):", "KeyError: 'x'", timeout}), "app python, a user's mistake");
}

}  // namespace
}  // namespace mm::recovery
