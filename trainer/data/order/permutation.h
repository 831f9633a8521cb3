// SPDX-License-Identifier: Apache-2.0
// A permutation of 0 ... n-1 that is computed, not stored: a Feistel network keyed by (seed, epoch) over the next power of
// four, walked until it falls inside (at most 4 steps on average). Any position of any epoch costs the same. Checkpoints rely
// on its values: a change of the function changes what a resumed run reads.
#pragma once

#include <array>
#include <cstdint>

namespace mm::data {

class Permutation {
 public:
  Permutation(uint64_t n, uint64_t seed, uint64_t epoch);
  uint64_t operator()(uint64_t i) const;  // i < n
  uint64_t inverse(uint64_t value) const;  // value < n

 private:
  uint64_t encrypt(uint64_t value) const;
  uint64_t decrypt(uint64_t value) const;
  uint64_t n_;
  int half_bits_;
  std::array<uint64_t, 6> keys_;
};

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every bit of the input moves every bit of the output.
uint64_t mix_bits(uint64_t x);

}  // namespace mm::data
