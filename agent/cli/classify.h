// SPDX-License-Identifier: Apache-2.0
// mm-agent classify: the incidents in kernel-log files. Needs no agent.
#pragma once

#include <string>
#include <vector>

namespace mm::agent {

// "-" is standard input. Prints, and returns the exit status; throws an Error that names a file that cannot be read.
int classify(const std::vector<std::string>& files, bool json);

}  // namespace mm::agent
