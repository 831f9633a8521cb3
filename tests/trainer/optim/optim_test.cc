// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "trainer/optim/adamw.h"
#include "trainer/optim/schedule.h"

namespace mm::optim {
namespace {

double gradient(int64_t t, int64_t i) {
  return static_cast<double>((t * 7 + i * 5) % 11 - 5) / 16;
}

TEST(AdamW, EqualsNumbersThatWereComputedWithFiftyDigits) {
  // p, m, v after three updates, by the formulas of the paper in decimal arithmetic.
  constexpr double expected[4][3] = {{0.374183072808057225, 0.0150625, 0.00158251953125},
                                     {-1.24929053066031071, -0.0048125, 0.00117138671875},
                                     {3.499733996133331694, 0.00659375, 0.0012427978515625},
                                     {-0.06159491332086901, -0.01328125, 0.0014825439453125}};
  tensor::ThreadPool pool(1);
  std::vector<double> values = {0.375, -1.25, 3.5, -0.0625}, gradients(4), m(4), v(4);
  const auto piece = [&](size_t at, bool decays) {
    return Piece<double>{&values[at], &gradients[at], &m[at], &v[at], 2, decays};
  };
  const std::vector<Piece<double>> pieces = {piece(0, true), piece(2, false)};
  int64_t t = 0;
  for (double lr : {0.00025, 0.0005, 0.001}) {
    ++t;
    for (int64_t i = 0; i < 4; ++i) gradients[static_cast<size_t>(i)] = gradient(t, i);
    adamw<double>({}, t, lr, 0.5, pieces, pool);
  }
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(values[i], expected[i][0], 2e-16 + std::abs(expected[i][0]) * 4e-16) << i;
    EXPECT_NEAR(m[i], expected[i][1], 1e-17) << i;
    EXPECT_NEAR(v[i], expected[i][2], expected[i][2] * 2e-15) << i;
  }
}

TEST(Schedule, WarmsUpAndEndsNearTheLeast) {
  const Schedule schedule{1e-3, 0.1, 4, 20};
  EXPECT_EQ(learning_rate(schedule, 0), 0.00025);
  EXPECT_EQ(learning_rate(schedule, 3), 0.001);
  EXPECT_EQ(learning_rate(schedule, 4), 0.001);
  EXPECT_NEAR(learning_rate(schedule, 12), 0.00055, 1e-18);
  EXPECT_NEAR(learning_rate(schedule, 19), 0.00010864662381854631, 1e-18);
  EXPECT_EQ(learning_rate({1e-3, 0.1, 0, 1}, 0), 1e-3);
  EXPECT_EQ(clip_scale(0.5, 1.0), 1.0);
  EXPECT_NEAR(clip_scale(4.0, 1.0), 1 / 4.000001, 1e-16);
  EXPECT_EQ(clip_scale(1e30, 0), 1.0);
}

}  // namespace
}  // namespace mm::optim
