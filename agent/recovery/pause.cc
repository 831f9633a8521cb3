// SPDX-License-Identifier: Apache-2.0
#include "agent/recovery/pause.h"

#include <algorithm>

namespace mm::recovery {
namespace {

// SplitMix64, whose every output bit depends on every input bit.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

int pause_before_restart(int fruitless, uint64_t seed) {
  constexpr int without = 2, longest = 60'000;
  if (fruitless < without) return 0;
  const int whole = std::min(longest, 1000 << std::min(fruitless - without, 6));
  return whole / 2 + static_cast<int>(mix(seed + static_cast<uint64_t>(fruitless)) % static_cast<uint64_t>(whole / 2 + 1));
}

}  // namespace mm::recovery
