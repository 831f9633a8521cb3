// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/order/permutation.h"

#include <bit>

namespace mm::data {

uint64_t mix_bits(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

Permutation::Permutation(uint64_t n, uint64_t seed, uint64_t epoch)
    : n_(n), half_bits_(n <= 4 ? 1 : (std::bit_width(n - 1) + 1) / 2) {
  uint64_t key = mix_bits(mix_bits(seed) ^ epoch);
  for (uint64_t& k : keys_) k = key = mix_bits(key);
}

uint64_t Permutation::encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (const uint64_t key : keys_) {
    const uint64_t next = left ^ (mix_bits(right ^ key) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

uint64_t Permutation::decrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (auto key = keys_.rbegin(); key != keys_.rend(); ++key) {
    const uint64_t before = right ^ (mix_bits(left ^ *key) & mask);
    right = left;
    left = before;
  }
  return left << half_bits_ | right;
}

uint64_t Permutation::operator()(uint64_t i) const {
  do i = encrypt(i);
  while (i >= n_);
  return i;
}

uint64_t Permutation::inverse(uint64_t value) const {
  do value = decrypt(value);
  while (value >= n_);
  return value;
}

}  // namespace mm::data
