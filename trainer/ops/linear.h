// SPDX-License-Identifier: Apache-2.0
// The affine map y = x w^T + b and its gradients. Matrices are dense and row-major: x [rows, in], w [out, in], y [rows, out].
#pragma once

#include <cstdint>

#include "trainer/tensor/thread_pool.h"

namespace mm::ops {

// y = x w^T + bias + residual; bias [out] and residual [rows, out] may be null. residual may be y itself.
template <class T>
void linear(tensor::ThreadPool& pool, const T* x, const T* w, const T* bias, const T* residual, T* y, int64_t rows, int64_t in,
            int64_t out);
// dx = dy w, or dx += dy w.
template <class T>
void linear_grad_input(tensor::ThreadPool& pool, const T* dy, const T* w, T* dx, int64_t rows, int64_t in, int64_t out,
                       bool accumulate);
// dw += dy^T x
template <class T>
void linear_grad_weight(tensor::ThreadPool& pool, const T* dy, const T* x, T* dw, int64_t rows, int64_t in, int64_t out);
// sums[columns] += the sum of the rows of x [rows, columns].
template <class T>
void add_row_sums(tensor::ThreadPool& pool, const T* x, T* sums, int64_t rows, int64_t columns);

}  // namespace mm::ops
