// SPDX-License-Identifier: Apache-2.0
#include "trainer/ops/rows.h"

#include "trainer/ops/tiles.h"
#include "trainer/tensor/profile.h"

namespace mm::ops {

template <class Index, class T>
void gather_rows(ThreadPool& pool, const T* from, std::span<const Index> index, T* to, int64_t size) {
  const tensor::Timed timed("rows moved");
  for_parts(pool, static_cast<int64_t>(index.size()), rows_per_tile(size), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = index[static_cast<size_t>(i)];
      if (row >= 0) std::copy_n(from + row * size, size, to + i * size);
    }
  });
}

template <class T>
void scatter_rows(ThreadPool& pool, const T* from, std::span<const int64_t> index, T* to, int64_t size) {
  const tensor::Timed timed("rows moved");
  for_parts(pool, static_cast<int64_t>(index.size()), rows_per_tile(size), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) std::copy_n(from + i * size, size, to + index[static_cast<size_t>(i)] * size);
  });
}

template <class T>
void add_to_rows(ThreadPool& pool, const T* from, std::span<const int32_t> index, T* to, int64_t size) {
  const tensor::Timed timed("rows moved");
  for_parts(pool, size, columns_per_tile, [&](int64_t c0, int64_t c1) {
    for (size_t i = 0; i < index.size(); ++i) {
      if (index[i] < 0) continue;
      T* row = to + int64_t{index[i]} * size;
      const T* x = from + static_cast<int64_t>(i) * size;
      for (int64_t c = c0; c < c1; ++c) row[c] += x[c];
    }
  });
}

template <class T>
void add_repeated(ThreadPool& pool, const T* from, T* x, int64_t rows, int64_t period, int64_t size) {
  const tensor::Timed timed("rows moved");
  for_parts(pool, rows, rows_per_tile(size), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* row = from + r % period * size;
      for (int64_t c = 0; c < size; ++c) x[r * size + c] += row[c];
    }
  });
}

template <class T>
void add_period_sums(ThreadPool& pool, const T* x, T* sums, int64_t rows, int64_t period, int64_t size) {
  const tensor::Timed timed("rows moved");
  for_parts(pool, period, rows_per_tile(size), [&](int64_t begin, int64_t end) {
    for (int64_t first = 0; first < rows; first += period)
      for (int64_t p = begin; p < end; ++p)
        for (int64_t c = 0; c < size; ++c) sums[p * size + c] += x[(first + p) * size + c];
  });
}

template <class T>
void scale(ThreadPool& pool, T factor, T* x, int64_t n) {
  const tensor::Timed timed("rows moved");
  for_parts(pool, n, elements_per_tile, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) x[i] *= factor;
  });
}

template <class T>
void patches(const uint8_t* rgb, int64_t edge, int64_t patch, const T* table, T* out) {
  const int64_t across = edge / patch;
  for (int64_t py = 0; py < across; ++py)
    for (int64_t px = 0; px < across; ++px)
      for (int64_t c = 0; c < 3; ++c)
        for (int64_t y = 0; y < patch; ++y) {
          const uint8_t* from = rgb + ((py * patch + y) * edge + px * patch) * 3 + c;
          for (int64_t x = 0; x < patch; ++x) *out++ = table[c * 256 + from[3 * x]];
        }
}

#define MM_INSTANTIATE(T)                                                                   \
  template void gather_rows(ThreadPool&, const T*, std::span<const int32_t>, T*, int64_t);  \
  template void gather_rows(ThreadPool&, const T*, std::span<const int64_t>, T*, int64_t);  \
  template void scatter_rows(ThreadPool&, const T*, std::span<const int64_t>, T*, int64_t); \
  template void add_to_rows(ThreadPool&, const T*, std::span<const int32_t>, T*, int64_t);  \
  template void add_repeated(ThreadPool&, const T*, T*, int64_t, int64_t, int64_t);         \
  template void add_period_sums(ThreadPool&, const T*, T*, int64_t, int64_t, int64_t);      \
  template void scale(ThreadPool&, T, T*, int64_t);                                         \
  template void patches(const uint8_t*, int64_t, int64_t, const T*, T*);
MM_INSTANTIATE(float)
MM_INSTANTIATE(double)
#undef MM_INSTANTIATE

}  // namespace mm::ops
