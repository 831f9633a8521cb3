// SPDX-License-Identifier: Apache-2.0
// RUN/metrics.jsonl: one line for each step, in order, each step once, whatever happened to the run. A restarted run cuts the
// lines of the steps that it will do again, so a line of a step that ran twice never stays.
#pragma once

#include <cstdint>
#include <string>

#include "common/files.h"
#include "trainer/data/stream.h"

namespace mm::loop {

struct StepMetrics {
  int64_t step = 0;
  double loss = 0, grad_norm = 0, lr = 0;
  int64_t tokens = 0;  // trained labels of the global batch
  double step_s = 0, images_s = 0, tokens_s = 0, data_wait_s = 0, comm_wait_s = 0;
  double mfu = 0;            // of the measured peak of all ranks' threads; what is computed again does not count
  int64_t comm_bytes = 0;    // that this rank sent
  double save_s = 0;         // of the checkpoint that was made before the step; left out where there was none
  int64_t failed_saves = 0;  // since the start of the process; left out while 0
  int64_t skipped = 0;       // steps without an update since the start of the process (optim.skip_nonfinite); left out while 0
  int64_t rejected = 0;      // samples that could not be used, over all ranks; left out while 0
  data::StreamCounters loader;  // of rank 0: waits since the last step, all else as it is now
};
// One line with its newline; numbers with 17 significant digits, null for what is not finite.
std::string format_metrics(const StepMetrics& metrics);

class MetricsFile {
 public:
  // Opens the file, keeps the whole lines of steps below `first_step` and cuts what follows. Throws an Error that names it.
  MetricsFile(const std::string& path, int64_t first_step);
  // Appends a line. Where the disk does not take it (it is full), it is kept for the next call and the reason is returned; else
  // "".
  std::string append(const std::string& line);
  // Makes durable what is written; the reason where that fails.
  std::string sync();

 private:
  std::string path_;
  UniqueFd fd_;
  int64_t length_ = 0;  // bytes of whole lines
  std::string pending_;
};

}  // namespace mm::loop
