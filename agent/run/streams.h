// SPDX-License-Identifier: Apache-2.0
// Descriptors that mm-run reads and writes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/files.h"

namespace mm::run {

// Writes all of it, or as much as the other end takes before it goes.
void write_all(int fd, std::string_view bytes);
// Reads what is there; false at the end of the stream or where there is nothing.
bool read_some(int fd, std::string& to);

// Signals that concern the run arrive on a descriptor from now on; SIGPIPE is ignored.
UniqueFd signal_descriptor();
std::vector<int> read_signals(int fd);

}  // namespace mm::run
