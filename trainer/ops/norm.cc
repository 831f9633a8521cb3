// SPDX-License-Identifier: Apache-2.0
#include "trainer/ops/norm.h"

#include <cmath>

#include "trainer/ops/lanes.h"
#include "trainer/ops/tiles.h"
#include "trainer/tensor/profile.h"

namespace mm::ops {

template <class T>
void layer_norm(ThreadPool& pool, const T* x, const T* w, const T* b, T* y, T* mean, T* inverse, int64_t rows, int64_t size,
                double eps) {
  const tensor::Timed timed("norm");
  const T n = static_cast<T>(size), epsilon = static_cast<T>(eps);
  for_parts(pool, rows, rows_per_tile(size), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* in = x + r * size;
      T* out = y + r * size;
      const T m = sum<T>(size, [&](int64_t i) { return in[i]; }) / n;
      const T variance = sum<T>(size, [&](int64_t i) { return (in[i] - m) * (in[i] - m); }) / n;
      const T s = T(1) / std::sqrt(variance + epsilon);
      mean[r] = m;
      inverse[r] = s;
      for (int64_t i = 0; i < size; ++i) out[i] = (in[i] - m) * s * w[i] + b[i];
    }
  });
}

template <class T>
void layer_norm_backward(ThreadPool& pool, const T* x, const T* w, const T* mean, const T* inverse, const T* dy, T* dx, T* dw,
                         T* db, int64_t rows, int64_t size, bool accumulate) {
  const tensor::Timed timed("norm gradient");
  if (dw || db) {
    for_parts(pool, size, columns_per_tile, [&](int64_t c0, int64_t c1) {
      T weights[columns_per_tile] = {}, biases[columns_per_tile] = {};
      for (int64_t r = 0; r < rows; ++r) {
        const T *in = x + r * size, *g = dy + r * size;
        const T m = mean[r], s = inverse[r];
        for (int64_t c = c0; c < c1; ++c) {
          weights[c - c0] += g[c] * (in[c] - m) * s;
          biases[c - c0] += g[c];
        }
      }
      for (int64_t c = c0; dw && c < c1; ++c) dw[c] += weights[c - c0];
      for (int64_t c = c0; db && c < c1; ++c) db[c] += biases[c - c0];
    });
  }
  const T n = static_cast<T>(size);
  for_parts(pool, rows, rows_per_tile(size), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T *in = x + r * size, *g = dy + r * size;
      T* out = dx + r * size;
      const T m = mean[r], s = inverse[r];
      const T a = sum<T>(size, [&](int64_t i) { return g[i] * w[i]; }) / n;
      const T b = sum<T>(size, [&](int64_t i) { return g[i] * w[i] * (in[i] - m); }) * s * s / n;
      if (accumulate) {
        for (int64_t i = 0; i < size; ++i) out[i] += (g[i] * w[i] - a - (in[i] - m) * b) * s;
      } else {
        for (int64_t i = 0; i < size; ++i) out[i] = (g[i] * w[i] - a - (in[i] - m) * b) * s;
      }
    }
  });
}

template <class T>
void rms_norm(ThreadPool& pool, const T* x, const T* w, T* y, T* inverse, int64_t rows, int64_t size, double eps) {
  const tensor::Timed timed("norm");
  const T n = static_cast<T>(size), epsilon = static_cast<T>(eps);
  for_parts(pool, rows, rows_per_tile(size), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* in = x + r * size;
      T* out = y + r * size;
      const T s = T(1) / std::sqrt(sum<T>(size, [&](int64_t i) { return in[i] * in[i]; }) / n + epsilon);
      inverse[r] = s;
      for (int64_t i = 0; i < size; ++i) out[i] = in[i] * s * w[i];
    }
  });
}

template <class T>
void rms_norm_backward(ThreadPool& pool, const T* x, const T* w, const T* inverse, const T* dy, T* dx, T* dw, int64_t rows,
                       int64_t size, bool accumulate) {
  const tensor::Timed timed("norm gradient");
  if (dw) {
    for_parts(pool, size, columns_per_tile, [&](int64_t c0, int64_t c1) {
      T weights[columns_per_tile] = {};
      for (int64_t r = 0; r < rows; ++r) {
        const T *in = x + r * size, *g = dy + r * size;
        const T s = inverse[r];
        for (int64_t c = c0; c < c1; ++c) weights[c - c0] += g[c] * in[c] * s;
      }
      for (int64_t c = c0; c < c1; ++c) dw[c] += weights[c - c0];
    });
  }
  const T n = static_cast<T>(size);
  for_parts(pool, rows, rows_per_tile(size), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T *in = x + r * size, *g = dy + r * size;
      T* out = dx + r * size;
      const T s = inverse[r];
      const T b = sum<T>(size, [&](int64_t i) { return g[i] * w[i] * in[i]; }) * s * s / n;
      if (accumulate) {
        for (int64_t i = 0; i < size; ++i) out[i] += (g[i] * w[i] - in[i] * b) * s;
      } else {
        for (int64_t i = 0; i < size; ++i) out[i] = (g[i] * w[i] - in[i] * b) * s;
      }
    }
  });
}

#define MM_INSTANTIATE(T)                                                                                               \
  template void layer_norm(ThreadPool&, const T*, const T*, const T*, T*, T*, T*, int64_t, int64_t, double);            \
  template void layer_norm_backward(ThreadPool&, const T*, const T*, const T*, const T*, const T*, T*, T*, T*, int64_t, \
                                    int64_t, bool);                                                                     \
  template void rms_norm(ThreadPool&, const T*, const T*, T*, T*, int64_t, int64_t, double);                            \
  template void rms_norm_backward(ThreadPool&, const T*, const T*, const T*, const T*, T*, T*, int64_t, int64_t, bool);
MM_INSTANTIATE(float)
MM_INSTANTIATE(double)
#undef MM_INSTANTIATE

}  // namespace mm::ops
