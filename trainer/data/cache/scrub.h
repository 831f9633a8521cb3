// SPDX-License-Identifier: Apache-2.0
// Reads every block of a cache folder and removes what is not what it says.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace mm::data {

struct ScrubResult {
  int64_t blocks = 0, bytes = 0;  // that stay
  int64_t encrypted = 0;          // of these: their key is elsewhere, so only their frame is checked
  int64_t removed = 0;
};
// `all`: sound ones are removed, too, and the folder with them. `told` is given the name of each damaged file. Throws a usage Error for a
// folder that is none, or not the user's alone; files that no cache made are left alone.
ScrubResult scrub_cache(const std::string& folder, bool all, const std::function<void(const std::string& file)>& told);

}  // namespace mm::data
