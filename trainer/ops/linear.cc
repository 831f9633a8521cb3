// SPDX-License-Identifier: Apache-2.0
#include "trainer/ops/linear.h"

#include "trainer/ops/gemm.h"
#include "trainer/ops/tiles.h"
#include "trainer/tensor/profile.h"

namespace mm::ops {
namespace {

double products(int64_t rows, int64_t in, int64_t out) {
  return 2 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
}

}  // namespace

template <class T>
void linear(ThreadPool& pool, const T* x, const T* w, const T* bias, const T* residual, T* y, int64_t rows, int64_t in,
            int64_t out) {
  const tensor::Timed timed("linear", products(rows, in, out));
  multiply<T>(pool, {.m = rows,
                     .n = out,
                     .k = in,
                     .a = plain(x, in),
                     .b = transposed(w, in),
                     .c = y,
                     .c_stride = out,
                     .bias = bias,
                     .add = residual});
}

template <class T>
void linear_grad_input(ThreadPool& pool, const T* dy, const T* w, T* dx, int64_t rows, int64_t in, int64_t out,
                       bool accumulate) {
  const tensor::Timed timed("linear, input gradient", products(rows, in, out));
  multiply<T>(pool, {.m = rows,
                     .n = in,
                     .k = out,
                     .a = plain(dy, out),
                     .b = plain(w, in),
                     .c = dx,
                     .c_stride = in,
                     .add = accumulate ? dx : nullptr});
}

template <class T>
void linear_grad_weight(ThreadPool& pool, const T* dy, const T* x, T* dw, int64_t rows, int64_t in, int64_t out) {
  if (rows == 0) return;
  const tensor::Timed timed("linear, weight gradient", products(rows, in, out));
  multiply<T>(pool,
              {.m = out, .n = in, .k = rows, .a = transposed(dy, out), .b = plain(x, in), .c = dw, .c_stride = in, .add = dw});
}

template <class T>
void add_row_sums(ThreadPool& pool, const T* x, T* sums, int64_t rows, int64_t columns) {
  const tensor::Timed timed("bias gradient");
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
