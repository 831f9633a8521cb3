// SPDX-License-Identifier: Apache-2.0
// The same bits with 1, 2 and 3 threads, on shapes that are cut into several tiles.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/trainer/ops/differences.h"
#include "trainer/ops/activation.h"
#include "trainer/ops/attention.h"
#include "trainer/ops/cross_entropy.h"
#include "trainer/ops/linear.h"
#include "trainer/ops/norm.h"

namespace mm::ops {
namespace {

using tensor::ThreadPool;

template <class T>
struct ThreadBits : testing::Test {
  static std::vector<T> numbers(int64_t n, uint64_t seed) {
    const std::vector<double> x = test::numbers(static_cast<size_t>(n), seed);
    return {x.begin(), x.end()};
  }
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(ThreadBits, Types);

// Runs `compute`, which appends its results, with 1, 2 and 3 threads.
template <class T, class Compute>
void expect_same_bits(const Compute& compute) {
  std::vector<std::vector<T>> results;
  for (int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    compute(pool, results.emplace_back());
  }
  EXPECT_FALSE(results[0].empty());
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TYPED_TEST(ThreadBits, Linear) {
  using T = TypeParam;
  for (auto [rows, in, out] : {std::array<int64_t, 3>{517, 192, 513}, {300, 520, 192}, {30, 33, 700}}) {
    const auto x = this->numbers(rows * in, 1), w = this->numbers(in * out, 2), g = this->numbers(rows * out, 3),
               b = this->numbers(out, 4);
    expect_same_bits<T>([&](ThreadPool& pool, std::vector<T>& all) {
      std::vector<T> y(g.size()), dx(x.size()), dw(w.size(), T(1)), db(b.size());
      linear<T>(pool, x.data(), w.data(), b.data(), nullptr, y.data(), rows, in, out);
      linear_grad_input(pool, g.data(), w.data(), dx.data(), rows, in, out, false);
      linear_grad_weight(pool, g.data(), x.data(), dw.data(), rows, in, out);
      add_row_sums(pool, g.data(), db.data(), rows, out);
      for (const auto& part : {y, dx, dw, db}) all.insert(all.end(), part.begin(), part.end());
    });
  }
}

TYPED_TEST(ThreadBits, NormsActivationsAndLoss) {
  using T = TypeParam;
  const int64_t rows = 311, size = 197;
  const auto x = this->numbers(rows * size, 1), g = this->numbers(rows * size, 2), w = this->numbers(size, 3);
  std::vector<int32_t> labels;
  for (int32_t r = 0; r < rows; ++r) labels.push_back(r % static_cast<int32_t>(size));
  expect_same_bits<T>([&](ThreadPool& pool, std::vector<T>& all) {
    std::vector<T> y(x.size()), s(2 * rows), dx(x.size()), dw(w.size()), db(w.size()), a = g, c = x, up = x;
    std::vector<double> losses(rows);
    layer_norm(pool, x.data(), w.data(), w.data(), y.data(), s.data(), s.data() + rows, rows, size, 1e-6);
    layer_norm_backward(pool, x.data(), w.data(), s.data(), s.data() + rows, g.data(), dx.data(), dw.data(), db.data(), rows,
                        size, false);
    rms_norm(pool, x.data(), w.data(), y.data(), s.data(), rows, size, 1e-6);
    rms_norm_backward(pool, x.data(), w.data(), s.data(), g.data(), dx.data(), dw.data(), rows, size, true);
    gelu_backward(pool, Gelu::tanh, x.data(), a.data(), rows * size);
    swiglu_backward(pool, x.data(), g.data(), a.data(), a.data(), up.data(), rows * size);
    cross_entropy(pool, c.data(), labels.data(), losses.data(), rows, size);
    for (const auto& part : {y, s, dx, dw, db, a, c, up}) all.insert(all.end(), part.begin(), part.end());
    all.insert(all.end(), losses.begin(), losses.end());
  });
}

TYPED_TEST(ThreadBits, Attention) {
  using T = TypeParam;
  const std::vector<int64_t> starts = {0, 61, 300, 301, 440};
  std::vector<Segment> segments;
  whole_sequences(starts, segments);
  const AttentionShape shape{.heads = 6, .kv_heads = 2, .head_size = 16, .causal = true, .segments = segments};
  const auto q = this->numbers(440 * 96, 1), k = this->numbers(440 * 32, 2), v = this->numbers(440 * 32, 3),
             g = this->numbers(440 * 96, 4);
  expect_same_bits<T>([&](ThreadPool& pool, std::vector<T>& all) {
    std::vector<T> out(q.size()), log_sums(440 * 6), dq(q.size()), dk(k.size()), dv(v.size());
    attention(pool, shape, q.data(), k.data(), v.data(), out.data(), log_sums.data());
    attention_backward(pool, shape, q.data(), k.data(), v.data(), out.data(), g.data(), log_sums.data(), dq.data(), dk.data(),
                       dv.data());
    for (const auto& part : {out, log_sums, dq, dk, dv}) all.insert(all.end(), part.begin(), part.end());
  });
}

}  // namespace
}  // namespace mm::ops
