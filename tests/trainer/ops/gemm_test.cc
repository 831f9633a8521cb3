// SPDX-License-Identifier: Apache-2.0
// Products against their definition, on shapes around every limit of the tiles; and an element's bits, which depend on its own
// row and column alone.
#include "trainer/ops/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/trainer/ops/differences.h"

namespace mm::ops {
namespace {

template <class T>
std::vector<T> numbers(int64_t n, uint64_t seed) {
  const std::vector<double> x = test::numbers(static_cast<size_t>(n), seed);
  return {x.begin(), x.end()};
}

template <class T>
struct Gemm : testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Gemm, Types);

TYPED_TEST(Gemm, IsItsDefinition) {
  using T = TypeParam;
  tensor::ThreadPool pool(2);
  uint64_t seed = 0;
  for (int64_t m : {1, 5, 6, 7, 75})
    for (int64_t n : {1, 8, 15, 16, 17, 33, 530})
      for (int64_t k : {0, 1, 3, 8, 17, 384, 385, 801}) {
        const int64_t gap = static_cast<int64_t>(seed % 3), stride = n + gap;
        const bool a_across = seed % 2, b_across = seed / 2 % 2;
        const auto a = numbers<T>(m * k, ++seed), b = numbers<T>(k * n, ++seed), bias = numbers<T>(n, ++seed),
                   add = numbers<T>(m * stride, ++seed);
        Product<T> product{.m = m,
                           .n = n,
                           .k = k,
                           .a = a_across ? transposed(a.data(), m) : plain(a.data(), k),
                           .b = b_across ? transposed(b.data(), k) : plain(b.data(), n)};
        if (seed % 3 == 0) product.scale = T(0.375);
        if (seed % 5 < 3) product.bias = bias.data();
        if (seed % 7 < 4) product.add = add.data();
        product.c_stride = stride;
        std::vector<T> c(add.size(), T(-7)), alone = c, in_place = add;
        product.c = c.data();
        multiply(pool, product);
        product.c = alone.data();
        multiply(product);
        ASSERT_EQ(c, alone) << m << " " << n << " " << k;
        if (product.add) {
          product.add = product.c = in_place.data();
          multiply(pool, product);
        }
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < stride; ++j) {
            const auto at = static_cast<size_t>(i * stride + j);
            if (j >= n) {
              ASSERT_EQ(c[at], T(-7)) << "written beside the product";
              continue;
            }
            double sum = 0;
            for (int64_t p = 0; p < k; ++p)
              sum += static_cast<double>(product.a.data[i * product.a.row_step + p * product.a.column_step]) *
                     static_cast<double>(product.b.data[p * product.b.row_step + j * product.b.column_step]);
            sum *= static_cast<double>(product.scale);
            if (product.bias) sum += static_cast<double>(bias[static_cast<size_t>(j)]);
            if (product.add) sum += static_cast<double>(add[at]);
            const double tolerance = (sizeof(T) == 4 ? 1e-5 : 1e-14) * std::sqrt(static_cast<double>(k) + 1);
            ASSERT_NEAR(static_cast<double>(c[at]), sum, tolerance) << m << " " << n << " " << k << " at " << i << " " << j;
            if (product.add) {
              ASSERT_EQ(in_place[at], c[at]);
            }
          }
      }
}

// Rows and columns taken out of a larger product have the bits that they had in it: so a row's result does not depend on the
// other rows of the batch, nor on how ranks or threads share it.
TYPED_TEST(Gemm, AnElementDependsOnItsRowAndColumnAlone) {
  using T = TypeParam;
  tensor::ThreadPool pool(3);
  const int64_t m = 101, n = 607, k = 500;
  const auto a = numbers<T>(m * k, 1), b = numbers<T>(k * n, 2), bias = numbers<T>(n, 3), add = numbers<T>(m * n, 4);
  for (bool a_across : {false, true})
    for (bool b_across : {false, true}) {
      const Operand<T> whole_a = a_across ? transposed(a.data(), m) : plain(a.data(), k);
      const Operand<T> whole_b = b_across ? transposed(b.data(), k) : plain(b.data(), n);
      std::vector<T> whole(static_cast<size_t>(m * n)), part(whole.size());
      multiply<T>(pool, {.m = m,
                         .n = n,
                         .k = k,
                         .a = whole_a,
                         .b = whole_b,
                         .c = whole.data(),
                         .c_stride = n,
                         .scale = T(0.3),
                         .bias = bias.data(),
                         .add = add.data()});
      for (int64_t r0 = 0, r1 = 0, s = 1; r0 < m; r0 = r1, s = s * 5 % 37) {
        r1 = std::min(m, r0 + s);
        for (int64_t c0 = 0, c1 = 0, w = 3; c0 < n; c0 = c1, w = w * 7 % 211) {
          c1 = std::min(n, c0 + w);
          multiply<T>({.m = r1 - r0,
                       .n = c1 - c0,
                       .k = k,
                       .a = {whole_a.data + r0 * whole_a.row_step, whole_a.row_step, whole_a.column_step},
                       .b = {whole_b.data + c0 * whole_b.column_step, whole_b.row_step, whole_b.column_step},
                       .c = part.data() + r0 * n + c0,
                       .c_stride = n,
                       .scale = T(0.3),
                       .bias = bias.data() + c0,
                       .add = add.data() + r0 * n + c0});
        }
      }
      EXPECT_EQ(whole, part) << a_across << b_across;
    }
}

}  // namespace
}  // namespace mm::ops
