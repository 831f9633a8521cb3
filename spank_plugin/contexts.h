// SPDX-License-Identifier: Apache-2.0
// What the plugin does in each of Slurm's contexts; entry.cc dispatches.
#pragma once

#include <optional>
#include <string>

#include "spank_plugin/spank.h"

namespace mm::spank {

// The plugin's state in this process. Slurm hands its callbacks no pointer of ours.
struct Plugin {
  std::string config;                // the site file, from plugstack.conf
  std::optional<std::string> value;  // of --mm-train, the last call's
};
Plugin& plugin();

// Slurm's name for --mm-train of the plugin mm_train, as a job hands it to its steps.
constexpr const char* inherited_option_variable = "SLURM_SPANK__SLURM_SPANK_OPTION_mm_train_mm_train";

// option.cc
void register_option(spank_t spank);

// submit.cc: sbatch and salloc
void submit_init();
void submit_option();
void submit_check();

// srun.cc
void srun_init();
void srun_option();
void srun_check();
void srun_step_check(spank_t spank);

// step.cc: slurmstepd. step_task_environment runs as the user in the task's process, the others as root.
void step_prepare();
void step_task_environment(spank_t spank);
void step_task_started(spank_t spank);
void step_task_ended(spank_t spank);

}  // namespace mm::spank
