// SPDX-License-Identifier: Apache-2.0
// A content hash: XXH3, 128 bits, written as 32 hexadecimal digits. It tells accidents, not attackers.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mm::data {

struct Hash128 {
  uint64_t high = 0, low = 0;
  auto operator<=>(const Hash128&) const = default;
};
Hash128 hash_of(std::string_view bytes);
std::string hex(const Hash128& hash);
std::optional<Hash128> parse_hash(std::string_view hex);

}  // namespace mm::data
