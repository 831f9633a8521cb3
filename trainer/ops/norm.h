// SPDX-License-Identifier: Apache-2.0
// Layer norm (Ba, Kiros, Hinton 2016) and RMS norm (Zhang, Sennrich 2019) over the rows of x [rows, size], forward and
// backward.
#pragma once

#include <cstdint>

#include "trainer/tensor/thread_pool.h"

namespace mm::ops {

// y = (x - mean) * inverse * w + b with inverse = 1 / sqrt(variance + eps); mean and inverse [rows] are kept for backward.
template <class T>
void layer_norm(tensor::ThreadPool& pool, const T* x, const T* w, const T* b, T* y, T* mean, T* inverse, int64_t rows,
                int64_t size, double eps);
// dx = or += the gradient; dw and db [size] are added to, or null. dy may be dx where not accumulate.
template <class T>
void layer_norm_backward(tensor::ThreadPool& pool, const T* x, const T* w, const T* mean, const T* inverse, const T* dy, T* dx,
                         T* dw, T* db, int64_t rows, int64_t size, bool accumulate);

// y = x * inverse * w with inverse = 1 / sqrt(mean of squares + eps).
template <class T>
void rms_norm(tensor::ThreadPool& pool, const T* x, const T* w, T* y, T* inverse, int64_t rows, int64_t size, double eps);
template <class T>
void rms_norm_backward(tensor::ThreadPool& pool, const T* x, const T* w, const T* inverse, const T* dy, T* dx, T* dw,
                       int64_t rows, int64_t size, bool accumulate);

}  // namespace mm::ops
