// SPDX-License-Identifier: Apache-2.0
// Gradients by central differences, in double: f(x + h) - f(x - h) over 2 h for each element of an input, f a weighted sum of
// outputs.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace mm::test {

// Numbers in [-1, 1), the same on every machine.
inline std::vector<double> numbers(size_t n, uint64_t seed, double scale = 1) {
  std::vector<double> out;
  uint64_t x = seed * 0x9e3779b97f4a7c15 + 1;
  for (size_t i = 0; i < n; ++i) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    out.push_back(scale * (static_cast<double>(x >> 11) * 0x1p-52 - 1));
  }
  return out;
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// `gradient` against the differences of f in every element of x.
inline void expect_gradient(const std::string& what, std::vector<double>& x, const std::vector<double>& gradient,
                            const std::function<double()>& f, double tolerance = 2e-8) {
  ASSERT_EQ(x.size(), gradient.size()) << what;
  double error = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i], h = 1e-5;
    x[i] = kept + h;
    const double above = f();
    x[i] = kept - h;
    const double below = f();
    x[i] = kept;
    const double difference = (above - below) / (2 * h) - gradient[i];
    error += difference * difference;
    size += gradient[i] * gradient[i];
  }
  EXPECT_LE(std::sqrt(error), tolerance * (1 + std::sqrt(size))) << what;
  EXPECT_GT(size, 0) << what;
}

}  // namespace mm::test
