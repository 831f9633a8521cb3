// SPDX-License-Identifier: Apache-2.0
// Arithmetic on rows that compilers turn into vector code without leave to reorder: sums in a fixed number of lanes, and an
// exponential without branches or library calls, the same bits wherever in a row an element stands.
#pragma once

#include <bit>
#include <cstdint>

namespace mm::ops {

// 16 lanes of float, 8 of double: two vectors of 32 bytes.
template <class T>
inline constexpr int lanes = 64 / static_cast<int>(sizeof(T));

// Sum of term(i) over [0, n), always in the same order: element i in lane i mod lanes, then the lanes, then the tail.
template <class T, class Term>
inline T sum(int64_t n, const Term& term) {
  constexpr int width = lanes<T>;
  T partial[width] = {};
  const int64_t whole = n - n % width;
  for (int64_t i = 0; i < whole; i += width)
    for (int j = 0; j < width; ++j) partial[j] += term(i + j);
  T total = 0;
  for (int j = 0; j < width; ++j) total += partial[j];
  for (int64_t i = whole; i < n; ++i) total += term(i);
  return total;
}

template <class T>
inline T largest(const T* x, int64_t n) {
  constexpr int width = lanes<T>;
  if (n < width) {
    T best = x[0];
    for (int64_t i = 1; i < n; ++i) best = x[i] > best ? x[i] : best;
    return best;
  }
  T partial[width];
  for (int j = 0; j < width; ++j) partial[j] = x[j];
  int64_t i = width;
  for (; i + width <= n; i += width)
    for (int j = 0; j < width; ++j) partial[j] = x[i + j] > partial[j] ? x[i + j] : partial[j];
  T best = partial[0];
  for (int j = 1; j < width; ++j) best = partial[j] > best ? partial[j] : best;
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

// e^x: x = n ln 2 + r with |r| <= ln 2 / 2, Taylor's polynomial of e^r (remainder below half a unit in the last place), times
// 2^n. The argument is held to where the result is a normal number. Within 2 units in the last place; NaN stays NaN.
inline double exponential(double x) {
  x = x < -708.0 ? -708.0 : x;
  x = x > 709.0 ? 709.0 : x;
  constexpr double shift = 0x1.8p52;
  const double shifted = x * 0x1.71547652b82fep+0 + shift;  // rounds x / ln 2 to an integer, which stands in the low bits
  const double n = shifted - shift;
  const double r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  return p * std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023) << 52);
}

inline float exponential(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  constexpr float shift = 0x1.8p23f;
  const float shifted = x * 0x1.715476p+0f + shift;
  const float n = shifted - shift;
  const float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  float p = 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return p * std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) + 127) << 23);
}

template <class T>
inline T sigmoid(T x) {
  return T(1) / (T(1) + exponential(-x));
}

}  // namespace mm::ops
