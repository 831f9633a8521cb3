// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "trainer/optim/adamw.h"
#include "trainer/optim/schedule.h"

namespace mm::optim {
namespace {

using model::ParamSpec;

double gradient(int64_t t, int64_t i) {
  return static_cast<double>((t * 7 + i * 5) % 11 - 5) / 16;
}

// a: decays; b: does not; c: frozen; d: not reached.
std::vector<ParamSpec> four_params() {
  return {{.name = "a", .shape = {1, 2}},
          {.name = "b", .shape = {2}},
          {.name = "c", .shape = {2, 1}, .frozen = true},
          {.name = "d", .shape = {2}, .reached = false}};
}

TEST(AdamW, EqualsNumbersThatWereComputedWithFiftyDigits) {
  // p, m, v after three updates, by the formulas of the paper in decimal arithmetic.
  constexpr double expected[4][3] = {{0.374183072808057225, 0.0150625, 0.00158251953125},
                                     {-1.24929053066031071, -0.0048125, 0.00117138671875},
                                     {3.499733996133331694, 0.00659375, 0.0012427978515625},
                                     {-0.06159491332086901, -0.01328125, 0.0014825439453125}};
  tensor::ThreadPool pool(1);
  std::vector<double> values = {0.375, -1.25, 3.5, -0.0625, 4, 5, 6, 7}, gradients(8);
  AdamW<double> optimizer(four_params(), {0, 8}, {});
  int64_t t = 0;
  for (double lr : {0.00025, 0.0005, 0.001}) {
    ++t;
    for (int64_t i = 0; i < 8; ++i) gradients[static_cast<size_t>(i)] = gradient(t, i);
    optimizer.step(t, lr, 0.5, values.data(), gradients.data(), pool);
  }
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(values[i], expected[i][0], 2e-16 + std::abs(expected[i][0]) * 4e-16) << i;
    EXPECT_NEAR(optimizer.m()[i], expected[i][1], 1e-17) << i;
    EXPECT_NEAR(optimizer.v()[i], expected[i][2], expected[i][2] * 2e-15) << i;
  }
  for (size_t i = 4; i < 8; ++i) {
    EXPECT_EQ(values[i], static_cast<double>(i)) << "not trained";
    EXPECT_EQ(optimizer.m()[i], 0);
  }
}

// Shares of the flat block in place of the whole give the same bits, wherever they are cut, and so do several threads.
template <class T>
void shares_equal_the_whole() {
  const std::vector<ParamSpec> specs = {
      {.name = "a", .shape = {300, 333}}, {.name = "b", .shape = {77'777}}, {.name = "c", .shape = {}}};
  const int64_t n = 300 * 333 + 77'777 + 1;
  std::vector<T> start(static_cast<size_t>(n)), gradients(start);
  for (int64_t i = 0; i < n; ++i)
    start[static_cast<size_t>(i)] = static_cast<T>(1.0 / static_cast<double>(i + 3)),
    gradients[static_cast<size_t>(i)] = static_cast<T>(gradient(i, i / 7));
  const auto run = [&](int ranks, int threads) {
    tensor::ThreadPool pool(threads);
    std::vector<T> values = start;
    for (int r = 0; r < ranks; ++r) {
      AdamW<T> optimizer(specs, comm::part_of(n, r, ranks), {});
      for (int64_t t = 1; t <= 3; ++t) optimizer.step(t, 1e-2, 0.3, values.data(), gradients.data(), pool);
    }
    return values;
  };
  const std::vector<T> whole = run(1, 1);
  EXPECT_TRUE(whole == run(1, 3));
  EXPECT_TRUE(whole == run(7, 2));
}
TEST(AdamW, SharesEqualTheWhole) {
  shares_equal_the_whole<float>();
  shares_equal_the_whole<double>();
}

TEST(Norm, CountsEveryTrainedElementOnce) {
  tensor::ThreadPool one(1), three(3);
  std::vector<ParamSpec> specs = four_params();
  specs[0].shape = {123, 457};
  const int64_t n = 123 * 457 + 6;
  std::vector<double> data(static_cast<size_t>(n));
  long double expected = 0;
  for (int64_t i = 0; i < n; ++i) {
    data[static_cast<size_t>(i)] = 1.0 / static_cast<double>(i + 1);
    if (i < 123 * 457 + 2) expected += static_cast<long double>(data[static_cast<size_t>(i)]) * data[static_cast<size_t>(i)];
  }
  const std::vector<Tile> tiles = trained_tiles(specs, {0, n});
  EXPECT_NEAR(sum_of_squares(data.data(), tiles, one), static_cast<double>(expected), 1e-14);
  EXPECT_EQ(sum_of_squares(data.data(), tiles, one), sum_of_squares(data.data(), tiles, three));
  double shares = 0;
  for (int r = 0; r < 5; ++r) shares += sum_of_squares(data.data(), trained_tiles(specs, comm::part_of(n, r, 5)), one);
  EXPECT_NEAR(shares, static_cast<double>(expected), 1e-14);
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
