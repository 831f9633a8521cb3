// SPDX-License-Identifier: Apache-2.0
// Text from data sets, which may hold any bytes.
#pragma once

#include <string>
#include <string_view>

namespace mm::data {

// Each longest prefix of a character that is no character becomes U+FFFD (the practice that Unicode recommends); `repaired`
// says whether there was one. Valid text is returned as it is.
std::string repair_utf8(std::string_view text, bool& repaired);
// For messages: repaired, with control characters as \xNN, so that a name from a file cannot steer a terminal.
std::string printable(std::string_view text);
// A JSON string with its quotes.
std::string json_string(std::string_view text);

}  // namespace mm::data
