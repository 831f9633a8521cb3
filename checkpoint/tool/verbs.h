// SPDX-License-Identifier: Apache-2.0
// The verbs of mm-ckpt. Each returns the exit status: 0 done, 1 a check found something wrong; throws Error for wrong use.
// Results go to stdout, as text or as JSON Lines; messages and progress to stderr.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/repack.h"
#include "checkpoint/step_reader.h"

namespace mm::checkpoint::tool {

struct Target {
  std::string run;
  std::optional<int64_t> step;  // default: the newest that is not marked bad
};
// RUN or RUN@STEP.
Target parse_target(const std::string& text);

// Nothing would be loaded from there: exit 1.
struct NothingFound : Error {
  explicit NothingFound(const std::string& message) : Error(exit_status::found, message) {}
};
StepInfo choose(const Target& target);

int ls(const std::string& run, bool json);
int info(const Target& target, bool tensors, bool json);
struct VerifyOptions {
  bool all = false, quick = false, write_index = false;
};
int verify(const Target& target, const VerifyOptions& options, bool json);
int diff(const Target& a, const Target& b, bool json);
int export_to(const Target& target, const std::string& folder, uint64_t shard_bytes, bool json);
int import_from(const std::string& folder, const std::string& run, int64_t step, const Packing& packing, bool json);
int reshard_to(const Target& target, const std::string& run, const Packing& packing, bool json);

// Of the node that it runs on, inside a job.
int scavenge_node(const std::string& run, const std::string& node_folder, bool json);

struct PruneOptions {
  std::optional<int> keep;
  int64_t every = 0;
  std::vector<int64_t> pin, unpin;
  bool dry_run = false;
};
int prune(const std::string& run, const PruneOptions& options, bool json);

struct IntervalOptions {
  std::string run;                                    // may be empty
  std::optional<double> stall, flush, step, restart;  // seconds; measured in the run where they are not given
  double node_mtbf_hours = 0;
  int nodes = 1;
};
int interval(const IntervalOptions& options, bool json);

std::string text_of_bytes(uint64_t bytes);  // "1.2 GiB"

// A bar with the rate on stderr, where that is a terminal.
class Progress {
 public:
  Progress(std::string what, uint64_t total, bool quiet);
  ~Progress();
  void add(uint64_t bytes);
  double seconds() const;

 private:
  void draw() const;

  std::string what_;
  uint64_t total_, done_ = 0;
  bool shown_;
  int64_t begin_, drawn_;  // nanoseconds
};

}  // namespace mm::checkpoint::tool
