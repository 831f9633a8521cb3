// SPDX-License-Identifier: Apache-2.0
#include "trainer/ops/fma_peak.h"

#include <time.h>

#include <algorithm>

namespace mm::ops {
namespace {

double thread_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

double fma_peak(int bytes) {
  using Vector [[gnu::vector_size(32)]] = float;
  constexpr int chains = 12, rounds = 400'000, lanes = 8;
  double best = 0;
  for (int repeat = 0; repeat < 4; ++repeat) {
    Vector x[chains];
    for (Vector& v : x) {
      v = Vector{} + 1e-3f;
      asm volatile("" : "+x"(v));  // values that the compiler does not know to be one
    }
    const Vector factor = Vector{} + 0.999f, term = Vector{} + 1e-3f;
    const double begin = thread_seconds();
    for (int i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
      for (int j = 0; j < chains; ++j) x[j] = x[j] * factor + term;
    }
    for (Vector& v : x) asm volatile("" : : "x"(v));
    best = std::max(best, 2.0 * lanes * chains * rounds / (thread_seconds() - begin));
  }
  return best * 4 / bytes;
}

}  // namespace mm::ops
