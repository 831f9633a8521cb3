// SPDX-License-Identifier: Apache-2.0
// SIGTERM (Slurm's at the time limit or before preemption) asks the run to save and to end with status 75.
#pragma once

namespace mm::loop {

void watch_for_stop();
bool stop_requested();

}  // namespace mm::loop
