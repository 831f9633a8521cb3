// SPDX-License-Identifier: Apache-2.0
// Small reads of /proc and /sys files. What cannot be read, or is no number, is absent: one odd file never hides the others.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace mm::agent {

// The first line, without the line end.
std::optional<std::string> read_line(const std::string& path);
std::optional<std::string> read_small(const std::string& path);  // up to 64 KiB
// A number at the start of the file: "12\n" is one, "N/A (no PMA)" is none.
std::optional<double> read_number(const std::string& path);
// Names in a folder, sorted; none where it is not there.
std::vector<std::string> list_folder(const std::string& path);

}  // namespace mm::agent
