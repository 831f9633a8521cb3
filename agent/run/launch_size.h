// SPDX-License-Identifier: Apache-2.0
// How many nodes the first run of a job was launched on, kept in RUN/launch.json: a requeued run may have been given other nodes, whose agents
// do not know, and fewer of them, without spares. Books that cannot be kept do not stop the run.
#pragma once

#include <optional>
#include <string>

namespace mm::run {

void write_launch_size(const std::string& run_folder, const std::string& job, int nodes);
// Of the same job; nothing where that is not known.
std::optional<int> read_launch_size(const std::string& run_folder, const std::string& job);

}  // namespace mm::run
