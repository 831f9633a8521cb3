// SPDX-License-Identifier: Apache-2.0
// What --mm-train asks for against the nodes and tasks that a submission states. Pure but for reading the job file.
#pragma once

#include <optional>
#include <string>

#include "common/job.h"
#include "spank_plugin/command_line.h"
#include "spank_plugin/record.h"

namespace mm::spank {

// The option's value as a job and as the record that goes with it; nothing for `off`. Throws a usage Error.
struct Request {
  Job job;
  Record record;
};
std::optional<Request> read_request(const std::string& value);
// For an option that a step inherits from its job: the same file, by its absolute path, as it is now; where it is gone, as it
// was.
std::optional<Request> read_inherited_request(const Record& record);

// The number of tasks that train (all but the spare nodes'), 0 where the statements leave it open. Throws a usage Error where
// they contradict the layout, the global batch or the spares, or ask for a heterogeneous job.
int check_submission(const Job& job, const Stated& stated);

// Whether a step of this size is a helper beside the training (`srun hostname`), whose tasks may fit the layout or not.
struct StepSize {
  int tasks = 0, job_nodes = 0;
  bool inherited = false;
};
bool is_helper(const Record& record, const StepSize& step);
// Throws a usage Error where a step's tasks do not fit the layout.
void check_step(const Job& job, int tasks);

}  // namespace mm::spank
