// SPDX-License-Identifier: Apache-2.0
// Captions for pictures that have none: the words of their path and name, or a table.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

namespace mm::data {

// "animals/birds/emperor_penguin_01.png" -> "animals birds emperor penguin": split at everything that is no letter and where a
// small letter meets a capital one; lower case; single letters dropped; each word once. A path without such words gives its
// name as it is.
std::string caption_of_path(std::string_view relative_path);

// Lines "PATH<tab>CAPTION", paths relative to the source folder. Throws a usage Error that names file and line.
std::unordered_map<std::string, std::string> read_captions(const std::string& file);

}  // namespace mm::data
