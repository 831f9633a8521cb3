// SPDX-License-Identifier: Apache-2.0
#include "agent/recovery/step_log.h"

namespace mm::recovery {
namespace {

constexpr int hardware = 40, limit = 35, mistake = 30, trace = 20, consequence = 10;
constexpr size_t longest = 500;

struct Pattern {
  std::string_view text;
  const char* klass;
  const char* code;
  int weight;
};

constexpr Pattern patterns[] = {
    // RuntimeError: CUDA error: uncorrectable ECC error encountered
    {"uncorrectable ECC error", "gpu", "cuda_ecc", hardware},
    {"GPU is lost", "gpu", "gpu_lost", hardware},
    {"GPU has fallen off the bus", "gpu", "gpu_lost", hardware},
    {"CUDA error: hardware stack error", "gpu", "cuda_hardware", hardware},
    {"CUDA error: Invalid access of peer GPU memory over nvlink", "gpu", "nvlink", hardware},
    {"CUDA-capable devices are busy or unavailable", "gpu", "cuda_unavailable", hardware},
    {"Unable to determine the device handle for GPU", "gpu", "gpu_lost", hardware},
    // NCCL WARN NET/IB : Got completion from peer 10.0.0.7 with status=12 opcode=0 len=0 vendor err 129
    {"NET/IB : Got completion from peer", "nic", "ib_completion", hardware},
    {"NET/IB : Got async event : port error", "nic", "ib_port", hardware},
    {"NET/IB: Got async event: port error", "nic", "ib_port", hardware},
    // slurmstepd: error: Detected 1 oom_kill event in StepId=11.0. Some of the step tasks have been OOM Killed.
    {"oom_kill event", "memory", "oom", limit},
    {"oom-kill event", "memory", "oom", limit},
    {"DUE TO TIME LIMIT", "slurm", "time_limit", limit},
    {"DUE TO PREEMPTION", "slurm", "preempted", limit},
    {"No space left on device", "storage", "disk_full", limit},
    {"Disk quota exceeded", "storage", "quota", limit},
    {"Input/output error", "storage", "io_error", limit},
    {"Stale file handle", "storage", "stale_handle", limit},
    {"Read-only file system", "storage", "read_only", limit},
    {"CUDA out of memory", "app", "cuda_out_of_memory", mistake},
    {"CUDA error: an illegal memory access", "app", "cuda_illegal_access", mistake},
    {"CUDA error: misaligned address", "app", "cuda_illegal_access", mistake},
    {"device-side assert triggered", "app", "cuda_assert", mistake},
    {"CUDA error: invalid device ordinal", "app", "cuda_device", mistake},
    {"No CUDA GPUs are available", "app", "cuda_device", mistake},
    {"CUDA driver version is insufficient", "app", "cuda_version", mistake},
    {"MPI_ABORT was invoked", "app", "mpi_abort", trace},
    {"Segmentation fault", "app", "crash", trace},
    {"CUDA error: unspecified launch failure", "app", "cuda_launch", trace},
    // [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, ...) ran for 600000 milliseconds
    {"Watchdog caught collective operation timeout", "peer", "nccl_timeout", consequence},
    {"ncclRemoteError", "peer", "nccl_remote", consequence},
    {"ncclSystemError", "peer", "nccl_system", consequence},
    {"Connection closed by remote peer", "peer", "connection", consequence},
    {"Connection reset by peer", "peer", "connection", consequence},
    {"Connection refused", "peer", "connection", consequence},
    {"PMIX ERROR", "peer", "pmix", consequence},
};

// "ValueError: wrong shape", "torch.OutOfMemoryError: ..."
bool is_exception(std::string_view line) {
  const size_t colon = line.find(':');
  std::string_view name = line.substr(0, colon);
  if (name.empty() || name.size() > 80 || name.find(' ') != std::string_view::npos) return false;
  return name.ends_with("Error") || name.ends_with("Exception") || name.ends_with("Interrupt") || name == "AssertionError";
}

// srun --label puts "3: " in front, torchrun "[rank3]: ".
std::string_view without_label(std::string_view line) {
  if (line.starts_with("[rank")) {
    const size_t end = line.find("]: ");
    if (end != std::string_view::npos) return line.substr(end + 3);
  }
  const size_t colon = line.find(": ");
  if (colon != std::string_view::npos && colon > 0 && line.substr(0, colon).find_first_not_of("0123456789 ") == std::string_view::npos) return line.substr(colon + 2);
  return line;
}

}  // namespace

const char* LogExplanation::kind() const {
  if (weight >= hardware) return "hardware";
  if (weight >= limit) return "a limit or a service";
  return weight > consequence ? "a user's mistake" : "a lost peer";
}

std::optional<LogExplanation> explain_line(std::string_view line) {
  for (const Pattern& p : patterns)
    if (line.find(p.text) != std::string_view::npos) return LogExplanation{p.klass, p.code, std::string(line.substr(0, longest)), p.weight};
  return std::nullopt;
}

void StepLog::clear() { *this = StepLog(); }

void StepLog::add(std::string_view raw) {
  const std::string_view line = without_label(raw);
  std::optional<LogExplanation> found = explain_line(line);
  if (line.starts_with("Traceback (most recent call last)")) {
    in_traceback_ = true;
  } else if (in_traceback_ && is_exception(line)) {
    in_traceback_ = false;
    if (!found) found = LogExplanation{"app", "python", std::string(line.substr(0, longest)), trace};
  }
  if (found && (!best_ || found->weight > best_->weight)) best_ = std::move(found);
}

}  // namespace mm::recovery
