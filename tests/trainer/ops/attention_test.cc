// SPDX-License-Identifier: Apache-2.0
// Attention against its definition, its gradients against central differences, and attention whose keys come in parts, as they
// travel around a ring, against attention that has them all at once.
#include "trainer/ops/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/trainer/ops/differences.h"

namespace mm::ops {
namespace {

using test::dot;
using test::expect_gradient;
using test::numbers;
using Vector = std::vector<double>;

tensor::ThreadPool& pool() {
  static tensor::ThreadPool one(2);
  return one;
}

AttentionShape shape_of(int64_t heads, int64_t kv_heads, int64_t size, bool causal, std::span<const Segment> segments) {
  return {.heads = heads, .kv_heads = kv_heads, .head_size = size, .causal = causal, .segments = segments};
}

struct AttentionCase {
  int64_t heads, kv_heads;
  bool causal;
};
class Attention : public testing::TestWithParam<AttentionCase> {};
INSTANTIATE_TEST_SUITE_P(Shapes, Attention,
                         testing::Values(AttentionCase{2, 2, false}, AttentionCase{2, 2, true}, AttentionCase{4, 2, true},
                                         AttentionCase{3, 1, false}));

TEST_P(Attention, Gradients) {
  const std::vector<int64_t> starts = {0, 3, 4, 4, 9};
  const auto [heads, kv_heads, causal] = GetParam();
  const int64_t size = 3, rows = 9;
  std::vector<Segment> segments;
  whole_sequences(starts, segments);
  const AttentionShape shape = shape_of(heads, kv_heads, size, causal, segments);
  const auto n = static_cast<size_t>(rows * heads * size), m = static_cast<size_t>(rows * kv_heads * size);
  Vector q = numbers(n, 1), k = numbers(m, 2), v = numbers(m, 3), out(n), log_sums(static_cast<size_t>(rows * heads));
  const Vector g = numbers(n, 4);
  const auto f = [&] {
    attention(pool(), shape, q.data(), k.data(), v.data(), out.data(), log_sums.data());
    return dot(out, g);
  };
  f();
  Vector dq(n, 9), dk(m, 9), dv(m, 9);
  attention_backward(pool(), shape, q.data(), k.data(), v.data(), out.data(), g.data(), log_sums.data(), dq.data(), dk.data(),
                     dv.data());
  expect_gradient("q", q, dq, f);
  expect_gradient("k", k, dk, f);
  expect_gradient("v", v, dv, f);
}

// Longer than a block of rows, so that blocks, the causal limit and the sum over blocks count.
TEST_P(Attention, EqualsItsDefinitionAcrossBlocks) {
  const std::vector<int64_t> starts = {0, 5, 5 + 301};
  const auto [heads, kv_heads, causal] = GetParam();
  const int64_t size = 4, rows = starts.back(), group = heads / kv_heads;
  std::vector<Segment> segments;
  whole_sequences(starts, segments);
  const AttentionShape shape = shape_of(heads, kv_heads, size, causal, segments);
  const auto n = static_cast<size_t>(rows * heads * size), m = static_cast<size_t>(rows * kv_heads * size);
  Vector q = numbers(n, 1, 3), k = numbers(m, 2, 3), v = numbers(m, 3), out(n), log_sums(static_cast<size_t>(rows * heads));
  attention(pool(), shape, q.data(), k.data(), v.data(), out.data(), log_sums.data());
  const Vector g = numbers(n, 4);
  Vector dq(n), dk(m), dv(m), dq2(n), dk2(m), dv2(m);
  attention_backward(pool(), shape, q.data(), k.data(), v.data(), out.data(), g.data(), log_sums.data(), dq.data(), dk.data(),
                     dv.data());
  double worst = 0;
  for (size_t s = 0; s + 1 < starts.size(); ++s) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = starts[s]; i < starts[s + 1]; ++i) {
        const auto at = [&](int64_t row, int64_t of, int64_t head, int64_t d) {
          return static_cast<size_t>((row * of + head) * size + d);
        };
        const int64_t end = causal ? i + 1 : starts[s + 1], kv = h / group;
        Vector p(static_cast<size_t>(end - starts[s])), dp(p.size());
        double total = 0, mean = 0;
        for (int64_t j = starts[s]; j < end; ++j) {
          double score = 0;
          for (int64_t d = 0; d < size; ++d) score += q[at(i, heads, h, d)] * k[at(j, kv_heads, kv, d)];
          total += p[static_cast<size_t>(j - starts[s])] = std::exp(score / std::sqrt(static_cast<double>(size)));
        }
        for (int64_t j = starts[s]; j < end; ++j) {
          const auto c = static_cast<size_t>(j - starts[s]);
          p[c] /= total;
          for (int64_t d = 0; d < size; ++d) {
            dp[c] += g[at(i, heads, h, d)] * v[at(j, kv_heads, kv, d)];
            dv2[at(j, kv_heads, kv, d)] += p[c] * g[at(i, heads, h, d)];
          }
          mean += p[c] * dp[c];
        }
        for (int64_t d = 0; d < size; ++d) {
          double expected = 0;
          for (int64_t j = starts[s]; j < end; ++j)
            expected += p[static_cast<size_t>(j - starts[s])] * v[at(j, kv_heads, kv, d)];
          worst = std::max(worst, std::abs(expected - out[at(i, heads, h, d)]));
        }
        for (int64_t j = starts[s]; j < end; ++j) {
          const auto c = static_cast<size_t>(j - starts[s]);
          const double ds = p[c] * (dp[c] - mean) / std::sqrt(static_cast<double>(size));
          for (int64_t d = 0; d < size; ++d) {
            dq2[at(i, heads, h, d)] += ds * k[at(j, kv_heads, kv, d)];
            dk2[at(j, kv_heads, kv, d)] += ds * q[at(i, heads, h, d)];
          }
        }
      }
    }
  }
  for (size_t i = 0; i < n; ++i) worst = std::max(worst, std::abs(dq[i] - dq2[i]));
  for (size_t i = 0; i < m; ++i) worst = std::max({worst, std::abs(dk[i] - dk2[i]), std::abs(dv[i] - dv2[i])});
  EXPECT_LT(worst, 1e-12);
}

// Packed sequences, their rows cut into 2 n chunks of which rank c of n holds c and 2 n - 1 - c. A rank sees the ranks' keys
// one rank after another.
struct Zigzag {
  int64_t n;
  const std::vector<int64_t>& starts;
  int64_t rows() const { return starts.back(); }
  int64_t cut(int64_t chunk) const { return rows() * chunk / (2 * n); }
  int64_t chunk(int64_t rank, int half) const { return half == 0 ? rank : 2 * n - 1 - rank; }
  std::vector<int64_t> rows_of(int64_t rank) const {
    std::vector<int64_t> held;
    for (int half : {0, 1})
      for (int64_t r = cut(chunk(rank, half)); r < cut(chunk(rank, half) + 1); ++r) held.push_back(r);
    return held;
  }
  // The queries of one rank against the keys of another.
  std::vector<Segment> segments(int64_t q_rank, int64_t k_rank) const {
    std::vector<Segment> found;
    for (size_t s = 0; s + 1 < starts.size(); ++s)
      for (int q_half : {0, 1})
        for (int k_half : {0, 1}) {
          struct Run {
            int64_t begin, end, local;
          };
          const auto run = [&](int64_t rank, int half) {
            const int64_t first = cut(chunk(rank, half)), begin = std::max(first, starts[s]),
                          end = std::min(cut(chunk(rank, half) + 1), starts[s + 1]);
            return Run{begin, end, begin - first + (half == 0 ? 0 : cut(rank + 1) - cut(rank))};
          };
          const Run q = run(q_rank, q_half), k = run(k_rank, k_half);
          if (q.begin < q.end && k.begin < k.end)
            found.push_back({static_cast<int64_t>(s), q.local, q.end - q.begin, k.local, k.end - k.begin, q.begin - k.begin});
        }
    return found;
  }
};

Vector rows_of(const Vector& x, const std::vector<int64_t>& rows, int64_t size) {
  Vector out;
  for (int64_t r : rows) out.insert(out.end(), x.begin() + r * size, x.begin() + (r + 1) * size);
  return out;
}

double worst_difference(const Vector& a, const Vector& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::isfinite(a[i]) ? std::abs(a[i] - b[i]) : 1e9);
  return worst;
}

TEST_P(Attention, KeysInPartsAreTheSame) {
  const auto [heads, kv_heads, causal] = GetParam();
  const std::vector<int64_t> starts = {0, 7, 8, 8, 331, 400};
  const int64_t size = 8, rows = starts.back(), q_size = heads * size, kv_size = kv_heads * size;
  const Vector q = numbers(static_cast<size_t>(rows * q_size), 1, 3), k = numbers(static_cast<size_t>(rows * kv_size), 2, 3),
               v = numbers(static_cast<size_t>(rows * kv_size), 3), g = numbers(q.size(), 4);
  std::vector<Segment> whole;
  whole_sequences(starts, whole);
  const AttentionShape all = shape_of(heads, kv_heads, size, causal, whole);
  Vector out(q.size()), sums(static_cast<size_t>(rows * heads)), dq(q.size()), dk(k.size()), dv(v.size());
  attention(pool(), all, q.data(), k.data(), v.data(), out.data(), sums.data());
  attention_backward(pool(), all, q.data(), k.data(), v.data(), out.data(), g.data(), sums.data(), dq.data(), dk.data(),
                     dv.data());
  for (int64_t n : {1, 2, 4}) {
    const Zigzag ring{n, starts};
    std::vector<Vector> dk_of(static_cast<size_t>(n)), dv_of(static_cast<size_t>(n));
    for (int64_t rank = 0; rank < n; ++rank) {
      const auto held = ring.rows_of(rank);
      const Vector my_q = rows_of(q, held, q_size), my_g = rows_of(g, held, q_size);
      Vector my_out(my_q.size(), NAN), my_sums(held.size() * static_cast<size_t>(heads), NAN), my_dq(my_q.size(), NAN);
      const auto around = [&](const auto& visit) {
        for (int64_t step = 0; step < n; ++step) {
          const int64_t from = (rank + step) % n;
          const auto segments = ring.segments(rank, from);
          const auto theirs = ring.rows_of(from);
          visit(shape_of(heads, kv_heads, size, causal, segments), rows_of(k, theirs, kv_size), rows_of(v, theirs, kv_size),
                static_cast<size_t>(from), step > 0);
        }
      };
      around([&](const AttentionShape& shape, const Vector& keys, const Vector& values, size_t, bool later) {
        attention(pool(), shape, my_q.data(), keys.data(), values.data(), my_out.data(), my_sums.data(), later);
      });
      EXPECT_LT(worst_difference(my_out, rows_of(out, held, q_size)), 1e-13);
      EXPECT_LT(worst_difference(my_sums, rows_of(sums, held, heads)), 1e-13);
      around([&](const AttentionShape& shape, const Vector& keys, const Vector& values, size_t from, bool later) {
        Vector &dkeys = dk_of[from], &dvalues = dv_of[from];
        dkeys.resize(keys.size());  // zeros where this rank is the first to come by
        dvalues.resize(values.size());
        if (!later) std::fill(my_dq.begin(), my_dq.end(), 0);
        attention_backward(pool(), shape, my_q.data(), keys.data(), values.data(), my_out.data(), my_g.data(), my_sums.data(),
                           my_dq.data(), dkeys.data(), dvalues.data(), true);
      });
      EXPECT_LT(worst_difference(my_dq, rows_of(dq, held, q_size)), 1e-13);
    }
    for (int64_t rank = 0; rank < n; ++rank) {
      EXPECT_LT(worst_difference(dk_of[static_cast<size_t>(rank)], rows_of(dk, ring.rows_of(rank), kv_size)), 1e-13);
      EXPECT_LT(worst_difference(dv_of[static_cast<size_t>(rank)], rows_of(dv, ring.rows_of(rank), kv_size)), 1e-13);
    }
  }
}

Vector columns(const Vector& x, int64_t stride, int64_t begin, int64_t end) {
  Vector out;
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(stride))
    out.insert(out.end(), x.begin() + static_cast<int64_t>(row) + begin, x.begin() + static_cast<int64_t>(row) + end);
  return out;
}

// Six heads in groups of two, dealt out as 3 | 3: the cut runs through a group, whose keys both sides read.
TEST(AttentionParts, HeadsMayBeCutInsideAGroup) {
  const int64_t size = 4, rows = 19;
  std::vector<Segment> segments;
  whole_sequences(std::vector<int64_t>{0, 6, rows}, segments);
  const Vector q = numbers(rows * 6 * size, 1), k = numbers(rows * 3 * size, 2), v = numbers(rows * 3 * size, 3),
               g = numbers(q.size(), 4);
  const auto run = [&](const AttentionShape& shape, const Vector& my_q, const Vector& my_k, const Vector& my_v,
                       const Vector& my_g) {
    Vector out(my_q.size()), sums(static_cast<size_t>(rows * shape.heads)), dq(my_q.size()), dk(my_k.size()), dv(my_k.size());
    attention(pool(), shape, my_q.data(), my_k.data(), my_v.data(), out.data(), sums.data());
    attention_backward(pool(), shape, my_q.data(), my_k.data(), my_v.data(), out.data(), my_g.data(), sums.data(), dq.data(),
                       dk.data(), dv.data());
    return std::vector<Vector>{out, dq, dk, dv};
  };
  const auto all = run(shape_of(6, 3, size, true, segments), q, k, v, g);
  std::vector<Vector> sums = {Vector(k.size()), Vector(k.size())};
  for (int64_t half : {0, 1}) {
    AttentionShape shape = shape_of(3, 2, size, true, segments);
    shape.group = 2;
    shape.first_head = half;  // head 3 is the second of its group
    const int64_t q0 = half * 3 * size, q1 = q0 + 3 * size, k0 = half * size, k1 = k0 + 2 * size;
    const auto part = run(shape, columns(q, 6 * size, q0, q1), columns(k, 3 * size, k0, k1), columns(v, 3 * size, k0, k1),
                          columns(g, 6 * size, q0, q1));
    for (size_t i : {0, 1}) EXPECT_LT(worst_difference(part[i], columns(all[i], 6 * size, q0, q1)), 1e-15);
    for (size_t i : {2, 3})
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t c = k0; c < k1; ++c)
          sums[i - 2][static_cast<size_t>(row * 3 * size + c)] += part[i][static_cast<size_t>(row * 2 * size + c - k0)];
  }
  for (size_t i : {2, 3}) EXPECT_LT(worst_difference(sums[i - 2], all[i]), 1e-14);
}

// Queries of which some see nothing yet, and then something in a later call.
TEST(AttentionParts, AQueryMaySeeNothing) {
  const Vector q = numbers(6, 1), k = numbers(6, 2), v = numbers(6, 3);
  Vector out(6, NAN), sums(3, NAN);
  const std::vector<Segment> late = {{0, 0, 3, 0, 3, -2}};  // query 2 sees key 0
  attention(pool(), shape_of(1, 1, 2, true, late), q.data(), k.data(), v.data(), out.data(), sums.data());
  EXPECT_EQ(sums[0], -INFINITY);
  EXPECT_EQ(sums[1], -INFINITY);
  EXPECT_EQ(out, (Vector{0, 0, 0, 0, v[0], v[1]}));
  Vector dq(6, NAN), dk(6, NAN), dv(6, NAN);
  attention_backward(pool(), shape_of(1, 1, 2, true, late), q.data(), k.data(), v.data(), out.data(), q.data(), sums.data(),
                     dq.data(), dk.data(), dv.data());
  EXPECT_EQ(dv, (Vector{q[4], q[5], 0, 0, 0, 0}));
  for (double x : dq) EXPECT_NEAR(x, 0, 1e-16);
  const std::vector<Segment> far = {{0, 0, 3, 0, 3, -9}, {0, 0, 3, 1, 1, 5}};
  attention(pool(), shape_of(1, 1, 2, true, far), q.data(), k.data(), v.data(), out.data(), sums.data(), true);
  EXPECT_EQ(out[0], v[2]);
  EXPECT_EQ(out[3], v[3]);
}

}  // namespace
}  // namespace mm::ops
