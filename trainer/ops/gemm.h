// SPDX-License-Identifier: Apache-2.0
// Matrix products c = scale a b + bias + add. An element is the same bits whatever the other rows and columns of the product,
// the tiles and the threads are: its k products are added in order by fused multiply-adds, in blocks of a length that depends
// on k alone, and the blocks' sums in order.
#pragma once

#include <cstdint>

#include "trainer/tensor/thread_pool.h"

namespace mm::ops {

// Element (i, j) is data[i * row_step + j * column_step]; one of the steps is 1.
template <class T>
struct Operand {
  const T* data;
  int64_t row_step, column_step;
};
template <class T>
Operand<T> plain(const T* x, int64_t stride) {
  return {x, stride, 1};
}
template <class T>
Operand<T> transposed(const T* x, int64_t stride) {
  return {x, 1, stride};
}

template <class T>
struct Product {
  int64_t m = 0, n = 0, k = 0;
  Operand<T> a, b;  // [m, k], [k, n]
  T* c = nullptr;   // [m, n] in rows of c_stride
  int64_t c_stride = 0;
  T scale = 1;
  const T* bias = nullptr;  // [n] or null
  const T* add = nullptr;   // [m, n] in rows of c_stride, or null; may be c itself
};

// On the caller's thread.
template <class T>
void multiply(const Product<T>& product);
// On the threads of the pool.
template <class T>
void multiply(tensor::ThreadPool& pool, const Product<T>& product);

}  // namespace mm::ops
