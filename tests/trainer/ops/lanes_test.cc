// SPDX-License-Identifier: Apache-2.0
#include "trainer/ops/lanes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/trainer/ops/differences.h"

namespace mm::ops {
namespace {

TEST(Lanes, ExponentialIsNearTheLibrarys) {
  for (double x : test::numbers(200000, 7, 700)) ASSERT_NEAR(exponential(x) / std::exp(x), 1, 5e-16) << x;
  for (double x : test::numbers(200000, 8, 1)) ASSERT_NEAR(exponential(x) / std::exp(x), 1, 5e-16) << x;
  for (double x : test::numbers(200000, 9, 86)) {
    const float y = static_cast<float>(x);
    ASSERT_NEAR(static_cast<double>(exponential(y)) / std::exp(static_cast<double>(y)), 1, 2e-7) << x;
  }
}

TEST(Lanes, ExponentialAtTheEnds) {
  EXPECT_EQ(exponential(0.0), 1.0);
  EXPECT_EQ(exponential(0.0f), 1.0f);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  EXPECT_LT(exponential(-infinity), 1e-300);
  EXPECT_GE(exponential(-infinity), 0);
  EXPECT_TRUE(std::isfinite(exponential(infinity)) && exponential(infinity) > 1e307);
  EXPECT_LT(exponential(-1e30f), 1e-37f);
  EXPECT_TRUE(std::isfinite(exponential(1e30f)) && exponential(1e30f) > 1e38f);
  EXPECT_TRUE(std::isnan(exponential(std::nan(""))));
  EXPECT_TRUE(std::isnan(exponential(std::nanf(""))));
}

TEST(Lanes, SumAndLargestOfEveryLength) {
  const std::vector<double> x = test::numbers(100, 3);
  for (int64_t n = 1; n <= 100; ++n) {
    double plain = 0, top = x[0];
    for (int64_t i = 0; i < n; ++i) {
      plain += x[static_cast<size_t>(i)];
      top = std::max(top, x[static_cast<size_t>(i)]);
    }
    EXPECT_NEAR(sum<double>(n, [&](int64_t i) { return x[static_cast<size_t>(i)]; }), plain, 1e-14);
    EXPECT_EQ(largest(x.data(), n), top);
  }
}

}  // namespace
}  // namespace mm::ops
