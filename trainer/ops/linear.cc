// SPDX-License-Identifier: Apache-2.0
#include "trainer/ops/linear.h"

#include "trainer/ops/blas.h"
#include "trainer/ops/tiles.h"

namespace mm::ops {
namespace {

// A product is cut to tiles of at most 256 by 256, large enough that packing the operands is a small part of the work, and
// small ones to two tiles where there is work enough for both. The longer side gets an even number of parts, so that two
// threads share it evenly.
constexpr int64_t largest_tile = 256;
constexpr int64_t worth_two_tiles = 16'000'000;  // floating-point operations

struct Tiles {
  Cut rows, columns;
};
Tiles cut_product(int64_t m, int64_t n, int64_t k) {
  const auto longer = [&](int64_t extent) {
    int64_t parts = (extent + largest_tile - 1) / largest_tile;
    if (parts == 1 && extent >= 64 && 2 * m * n * k >= worth_two_tiles) parts = 2;
    if (parts > 1) parts += parts % 2;
    return Cut::into(extent, parts);
  };
  return m >= n ? Tiles{longer(m), Cut(n, largest_tile)} : Tiles{Cut(m, largest_tile), longer(n)};
}

}  // namespace

template <class T>
void linear(ThreadPool& pool, const T* x, const T* w, const T* bias, const T* residual, T* y, int64_t rows, int64_t in,
            int64_t out) {
  if (rows == 0) return;
  const Tiles tiles = cut_product(rows, out, in);
  for_tiles(pool, tiles.rows, tiles.columns, [&](int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
    const bool start = bias || residual;
    for (int64_t r = r0; start && r < r1; ++r) {
      T* to = y + r * out;
      const T* from = residual ? residual + r * out : nullptr;
      if (bias && residual) {
        for (int64_t c = c0; c < c1; ++c) to[c] = from[c] + bias[c];
      } else if (bias) {
        std::copy(bias + c0, bias + c1, to + c0);
      } else if (to != from) {
        std::copy(from + c0, from + c1, to + c0);
      }
    }
    gemm(Op::none, Op::transposed, r1 - r0, c1 - c0, in, T(1), x + r0 * in, in, w + c0 * in, in, start ? T(1) : T(0),
         y + r0 * out + c0, out);
  });
}

template <class T>
void linear_grad_input(ThreadPool& pool, const T* dy, const T* w, T* dx, int64_t rows, int64_t in, int64_t out,
                       bool accumulate) {
  if (rows == 0) return;
  const Tiles tiles = cut_product(rows, in, out);
  for_tiles(pool, tiles.rows, tiles.columns, [&](int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
    gemm(Op::none, Op::none, r1 - r0, c1 - c0, out, T(1), dy + r0 * out, out, w + c0, in, accumulate ? T(1) : T(0),
         dx + r0 * in + c0, in);
  });
}

template <class T>
void linear_grad_weight(ThreadPool& pool, const T* dy, const T* x, T* dw, int64_t rows, int64_t in, int64_t out) {
  if (rows == 0) return;
  const Tiles tiles = cut_product(out, in, rows);
  for_tiles(pool, tiles.rows, tiles.columns, [&](int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
    gemm(Op::transposed, Op::none, r1 - r0, c1 - c0, rows, T(1), dy + r0, out, x + c0, in, T(1), dw + r0 * in + c0, in);
  });
}

template <class T>
void add_row_sums(ThreadPool& pool, const T* x, T* sums, int64_t rows, int64_t columns) {
  for_parts(pool, columns, columns_per_tile, [&](int64_t c0, int64_t c1) {
    T partial[columns_per_tile] = {};
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = c0; c < c1; ++c) partial[c - c0] += x[r * columns + c];
    for (int64_t c = c0; c < c1; ++c) sums[c] += partial[c - c0];
  });
}

#define MM_INSTANTIATE(T)                                                                                   \
  template void linear(ThreadPool&, const T*, const T*, const T*, const T*, T*, int64_t, int64_t, int64_t); \
  template void linear_grad_input(ThreadPool&, const T*, const T*, T*, int64_t, int64_t, int64_t, bool);    \
  template void linear_grad_weight(ThreadPool&, const T*, const T*, T*, int64_t, int64_t, int64_t);         \
  template void add_row_sums(ThreadPool&, const T*, T*, int64_t, int64_t);
MM_INSTANTIATE(float)
MM_INSTANTIATE(double)
#undef MM_INSTANTIATE

}  // namespace mm::ops
