// SPDX-License-Identifier: Apache-2.0
// The one environment variable by which sbatch, salloc and srun tell slurmstepd what a job asked for, SLURM_MM_TRAIN:
// slurmstepd must not read a user's job file, because it is root. Its name starts with SLURM_, so that --export=NONE and
// --export=LIST let it through. A job or step has the variable exactly where --mm-train is in force.
//
// What is in it is the user's word: whoever reads it as root takes nothing from it but bounded numbers and host names of the
// user's step.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mm::spank {

inline constexpr const char* record_variable = "SLURM_MM_TRAIN";

struct Record {
  std::string value;  // of --mm-train, as given
  std::string spec;   // the same, a job file's path made absolute
  int tp = 1, pp = 1, cp = 1;
  int encoder_tp = 0, encoder_dp = 0;
  int spares = 0;
  bool verbose = false;
  std::vector<double> bytes;                    // that a rank sends in a step, by placement::Kind; empty: a nominal model's
  std::string stage_speeds;                     // of a step's pipeline stages (common/plan/stages.h); empty: all alike
  bool user_cpus = false, user_memory = false;  // of a step: its user chose how tasks are bound
  int cpus = 0;                                 // of a step: CPUs of a task, as its user asked; 0: not stated
  double hang_timeout = 0;                      // seconds; 0: learnt
  bool requeue = true;
  int tasks = 0;         // that train, as far as the submission states it; 0: unknown
  std::string order;     // of a step: its nodes in the order of their first ranks, a host list; empty: Slurm's order
  std::string master;    // of a step: address of the first of them, where its name does not resolve
  bool ordered = false;  // the order is ours, by a host file of the step
  bool refused = false;  // srun found, with the step made, that it must not run
};

std::string format_record(const Record& record);
// Nothing where the text is no record, or a number in it is out of range.
std::optional<Record> parse_record(std::string_view text);

}  // namespace mm::spank
