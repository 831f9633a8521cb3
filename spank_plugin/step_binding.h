// SPDX-License-Identifier: Apache-2.0
// slurmstepd, in the task's own process before it becomes the user's program: GPUs in order, CPUs and memory bound.
#pragma once

#include <map>
#include <string>

#include "common/site.h"
#include "spank_plugin/environment.h"
#include "spank_plugin/record.h"
#include "spank_plugin/spank.h"

namespace mm::spank {

// Binds this process and returns what to tell its program: MM_GPU and MM_NIC. Changes the variables that list GPUs. Says what
// it does where the record is verbose, and warns once a node where it cannot. Never throws.
std::map<std::string, std::string> bind_this_task(spank_t spank, const Record& record, const TaskFacts& facts,
                                                  const Site& site) noexcept;

}  // namespace mm::spank
