// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/ops/differences.h"
#include "trainer/ops/activation.h"
#include "trainer/ops/cross_entropy.h"
#include "trainer/ops/linear.h"
#include "trainer/ops/norm.h"
#include "trainer/ops/rope.h"
#include "trainer/ops/rows.h"

namespace mm::ops {
namespace {

using test::dot;
using test::expect_gradient;
using test::numbers;
using Vector = std::vector<double>;

tensor::ThreadPool& pool() {
  static tensor::ThreadPool two(2);
  return two;
}

TEST(Gradients, Linear) {
  const int64_t rows = 5, in = 7, out = 6;
  Vector x = numbers(35, 1), w = numbers(42, 2), b = numbers(6, 3), residual = numbers(30, 4), y(30);
  const Vector g = numbers(30, 5);
  const auto f = [&] {
    linear(pool(), x.data(), w.data(), b.data(), residual.data(), y.data(), rows, in, out);
    return dot(y, g);
  };
  Vector dx(35, 99), dw(42, 0), db(6, 0);
  linear_grad_input(pool(), g.data(), w.data(), dx.data(), rows, in, out, false);
  linear_grad_weight(pool(), g.data(), x.data(), dw.data(), rows, in, out);
  add_row_sums(pool(), g.data(), db.data(), rows, out);
  expect_gradient("x", x, dx, f);
  expect_gradient("w", w, dw, f);
  expect_gradient("b", b, db, f);
  expect_gradient("residual", residual, g, f);
  const Vector once = dx, dw_once = dw;
  linear_grad_input(pool(), g.data(), w.data(), dx.data(), rows, in, out, true);
  linear_grad_weight(pool(), g.data(), x.data(), dw.data(), rows, in, out);
  for (size_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(dx[i], 2 * once[i], 1e-14);
  for (size_t i = 0; i < dw.size(); ++i) EXPECT_NEAR(dw[i], 2 * dw_once[i], 1e-14);
}

TEST(Gradients, LayerNorm) {
  const int64_t rows = 4, size = 19;
  Vector x = numbers(76, 1), w = numbers(19, 2), b = numbers(19, 3), y(76), mean(4), inverse(4);
  const Vector g = numbers(76, 4);
  const auto f = [&] {
    layer_norm(pool(), x.data(), w.data(), b.data(), y.data(), mean.data(), inverse.data(), rows, size, 1e-5);
    return dot(y, g);
  };
  f();
  Vector dx(76, 0), dw(19, 0), db(19, 0);
  layer_norm_backward(pool(), x.data(), w.data(), mean.data(), inverse.data(), g.data(), dx.data(), dw.data(), db.data(), rows,
                      size, true);
  expect_gradient("x", x, dx, f);
  expect_gradient("w", w, dw, f);
  expect_gradient("b", b, db, f);
  Vector in_place = g;
  f();
  layer_norm_backward<double>(pool(), x.data(), w.data(), mean.data(), inverse.data(), in_place.data(), in_place.data(),
                              nullptr, nullptr, rows, size, false);
  for (size_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(in_place[i], dx[i], 1e-13);
}

TEST(Gradients, RmsNorm) {
  const int64_t rows = 4, size = 21;
  Vector x = numbers(84, 1), w = numbers(21, 2), y(84), inverse(4);
  const Vector g = numbers(84, 4);
  const auto f = [&] {
    rms_norm(pool(), x.data(), w.data(), y.data(), inverse.data(), rows, size, 1e-6);
    return dot(y, g);
  };
  f();
  Vector dx(84, 0), dw(21, 0);
  rms_norm_backward(pool(), x.data(), w.data(), inverse.data(), g.data(), dx.data(), dw.data(), rows, size, true);
  expect_gradient("x", x, dx, f);
  expect_gradient("w", w, dw, f);
}

TEST(Gradients, Gelu) {
  for (Gelu kind : {Gelu::exact, Gelu::tanh, Gelu::quick}) {
    Vector x = numbers(40, 1, 4), y(40), gradient = numbers(40, 2);
    const Vector g = gradient;
    gelu_backward(pool(), kind, x.data(), gradient.data(), 40);
    expect_gradient("gelu", x, gradient, [&] {
      gelu(pool(), kind, x.data(), y.data(), 40);
      return dot(y, g);
    });
  }
}

TEST(Gradients, GeluIsItsDefinition) {
  Vector x = numbers(200, 3, 8), y(200);
  gelu(pool(), Gelu::tanh, x.data(), y.data(), 200);
  for (size_t i = 0; i < 200; ++i)
    EXPECT_NEAR(y[i], 0.5 * x[i] * (1 + std::tanh(std::sqrt(2 / M_PI) * (x[i] + 0.044715 * x[i] * x[i] * x[i]))), 4e-15);
  gelu(pool(), Gelu::quick, x.data(), y.data(), 200);
  for (size_t i = 0; i < 200; ++i) EXPECT_NEAR(y[i], x[i] / (1 + std::exp(-1.702 * x[i])), 4e-15);
}

TEST(Gradients, Swiglu) {
  Vector gate = numbers(30, 1, 4), up = numbers(30, 2), y(30), dgate(30), dup(30);
  const Vector g = numbers(30, 3);
  const auto f = [&] {
    swiglu(pool(), gate.data(), up.data(), y.data(), 30);
    return dot(y, g);
  };
  swiglu_backward(pool(), gate.data(), up.data(), g.data(), dgate.data(), dup.data(), 30);
  expect_gradient("gate", gate, dgate, f);
  expect_gradient("up", up, dup, f);
}

TEST(Gradients, Rope) {
  RopeTable<double> table(6, 100.0);
  table.reach(4);
  table.reach(9);
  const std::vector<int64_t> positions = {0, 3, 8};
  Vector x = numbers(36, 1), dx = numbers(36, 2);
  const Vector g = dx;
  rope(pool(), table, positions.data(), dx.data(), 3, 2, true);
  expect_gradient("x", x, dx, [&] {
    Vector y = x;
    rope(pool(), table, positions.data(), y.data(), 3, 2, false);
    return dot(y, g);
  });
}

TEST(Gradients, CrossEntropy) {
  const int64_t rows = 4, classes = 11;
  Vector logits = numbers(44, 1, 3), losses(4);
  const std::vector<int32_t> labels = {0, 10, 3, 3};
  const auto f = [&] {
    Vector kept = logits;
    cross_entropy(pool(), kept.data(), labels.data(), losses.data(), rows, classes);
    double total = 0;
    for (double loss : losses) total += loss;
    return total;
  };
  Vector gradient = logits;
  cross_entropy(pool(), gradient.data(), labels.data(), losses.data(), rows, classes);
  expect_gradient("logits", logits, gradient, f);
}

TEST(CrossEntropy, HoldsFarFromZero) {
  Vector logits = {1000, 0, -1000, -1000, 1000, 1000};
  std::vector<double> losses(2);
  const std::vector<int32_t> labels = {1, 2};
  cross_entropy(pool(), logits.data(), labels.data(), losses.data(), 2, 3);
  EXPECT_DOUBLE_EQ(losses[0], 1000);
  EXPECT_DOUBLE_EQ(losses[1], std::log(2.0));
}

TEST(Rows, GatherScatterAndTheirSums) {
  const int64_t size = 3;
  const Vector table = numbers(12, 1);
  const std::vector<int32_t> ids = {2, -1, 0, 2};
  Vector x(12, 7), back(12, 0);
  gather_rows<int32_t, double>(pool(), table.data(), ids, x.data(), size);
  add_to_rows<double>(pool(), x.data(), ids, back.data(), size);
  for (size_t d = 0; d < 3; ++d) {
    EXPECT_EQ(x[d], table[6 + d]);
    EXPECT_EQ(x[3 + d], 7);  // left as it was
    EXPECT_EQ(back[d], table[d]);
    EXPECT_EQ(back[3 + d], 0);
    EXPECT_EQ(back[6 + d], 2 * table[6 + d]);
  }
  const std::vector<int64_t> places = {3, 1};
  Vector scattered(12, 0), gathered(6);
  scatter_rows<double>(pool(), table.data(), places, scattered.data(), size);
  gather_rows<int64_t, double>(pool(), scattered.data(), places, gathered.data(), size);
  EXPECT_TRUE(std::equal(gathered.begin(), gathered.end(), table.begin()));
  Vector repeated(12, 0), sums(6, 0);
  add_repeated(pool(), table.data(), repeated.data(), 4, 2, size);
  add_period_sums(pool(), repeated.data(), sums.data(), 4, 2, size);
  for (size_t i = 0; i < 6; ++i) EXPECT_DOUBLE_EQ(sums[i], 2 * table[i]);
}

// A patch is laid out as a convolution's kernel: channel, row, column; the picture's edge that fills no patch is left out.
TEST(Rows, Patches) {
  const int64_t edge = 5, patch = 2;
  std::vector<uint8_t> rgb;
  for (int i = 0; i < 75; ++i) rgb.push_back(static_cast<uint8_t>(i));
  Vector table(768), out(4 * 12);
  for (size_t i = 0; i < 768; ++i) table[i] = static_cast<double>(i);
  patches(rgb.data(), edge, patch, table.data(), out.data());
  for (int64_t p = 0; p < 4; ++p)
    for (int64_t c = 0; c < 3; ++c)
      for (int64_t y = 0; y < 2; ++y)
        for (int64_t x = 0; x < 2; ++x)
          EXPECT_EQ(out[static_cast<size_t>(((p * 3 + c) * 2 + y) * 2 + x)],
                    static_cast<double>(c * 256 + ((p / 2 * 2 + y) * edge + p % 2 * 2 + x) * 3 + c));
}

}  // namespace
}  // namespace mm::ops
