// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/combine.h"

#include <algorithm>

namespace mm::comm {
namespace {

constexpr int64_t block = 4096;  // elements at a time, so that the running result stays in the cache

template <class T>
T larger(T a, T b) {
  return b > a || b != b ? b : a;
}

template <class T>
void combine_of(Combination combination, std::span<const void* const> x, int64_t n, T* result) {
  T running[block];
  for (int64_t begin = 0; begin < n; begin += block) {
    const int64_t m = std::min(block, n - begin);
    for (size_t r = 0; r < x.size(); ++r) {
      const T* const next = static_cast<const T*>(x[r]) + begin;
      if (r == 0)
        std::copy(next, next + m, running);
      else if (combination == Combination::largest)
        for (int64_t i = 0; i < m; ++i) running[i] = larger(running[i], next[i]);
      else
        for (int64_t i = 0; i < m; ++i) running[i] = static_cast<T>(running[i] + next[i]);
    }
    std::copy(running, running + m, result + begin);
  }
}

}  // namespace

int64_t size_of(Type type) {
  return type == Type::f64 ? 8 : type == Type::u8 ? 1 : 4;
}

void combine(Combination combination, Type type, std::span<const void* const> x, int64_t n, void* result) {
  switch (type) {
    case Type::f64:
      return combine_of(combination, x, n, static_cast<double*>(result));
    case Type::f32:
      return combine_of(combination, x, n, static_cast<float*>(result));
    case Type::i32:
      return combine_of(combination, x, n, static_cast<int32_t*>(result));
    case Type::u8:
      return combine_of(combination, x, n, static_cast<uint8_t*>(result));
  }
}

}  // namespace mm::comm
