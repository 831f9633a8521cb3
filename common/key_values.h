// SPDX-License-Identifier: Apache-2.0
// Messages of `KEY=VALUE` lines, as sd_notify uses them: easy to write from any language. Keys are unique; order is kept by name.
// A newline or backslash in a value is written as \n or \\.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace mm {

using KeyValues = std::map<std::string, std::string, std::less<>>;

std::string format_key_values(const KeyValues& values);
// Lines without '=' are ignored; of equal keys the last counts.
KeyValues parse_key_values(std::string_view text);

// The value, or the default where it is absent or no number.
std::string get(const KeyValues& values, std::string_view key, std::string_view otherwise = "");
int64_t get_int(const KeyValues& values, std::string_view key, int64_t otherwise);

}  // namespace mm
