// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/index/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <charconv>

namespace mm::data {

Hash128 hash_of(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

std::string hex(const Hash128& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

std::optional<Hash128> parse_hash(std::string_view hex) {
  Hash128 hash;
  if (hex.size() != 32) return std::nullopt;
  const char* middle = hex.data() + 16;
  const auto high = std::from_chars(hex.data(), middle, hash.high, 16), low = std::from_chars(middle, middle + 16, hash.low, 16);
  if (high.ec != std::errc() || high.ptr != middle || low.ec != std::errc() || low.ptr != middle + 16) return std::nullopt;
  return hash;
}

}  // namespace mm::data
