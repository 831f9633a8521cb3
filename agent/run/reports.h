// SPDX-License-Identifier: Apache-2.0
// mm-run's events as JSON lines, for --json.
#pragma once

#include <string>

namespace mm::run {

// {"time":..., "event":..., "job":..., "text":...}; the keys of `details`, a JSON object or empty, are added.
std::string event_line(const char* event, double time, const std::string& job, const std::string& text,
                       const std::string& details);

}  // namespace mm::run
