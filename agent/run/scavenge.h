// SPDX-License-Identifier: Apache-2.0
// Checkpoints that lie on a node alone which is left but lives: they go to the shared file system first (mm-ckpt scavenge, as a step there).
#pragma once

#include <string>

#include "agent/run/options.h"

namespace mm::run {

// What came of it, a line for people. Takes a minute at most.
std::string scavenge(const Plan& plan, const std::string& node);

}  // namespace mm::run
