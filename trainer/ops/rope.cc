// SPDX-License-Identifier: Apache-2.0
#include "trainer/ops/rope.h"

#include <cmath>

#include "trainer/ops/tiles.h"
#include "trainer/tensor/profile.h"

namespace mm::ops {

template <class T>
void RopeTable<T>::reach(int64_t positions) {
  if (positions <= positions_) return;
  const int half = head_size_ / 2;
  std::vector<double> frequencies(static_cast<size_t>(half));
  for (int j = 0; j < half; ++j) frequencies[static_cast<size_t>(j)] = std::pow(theta_, -(2.0 * j) / head_size_);
  for (int64_t p = positions_; p < positions; ++p) {
    for (double f : frequencies) {
      cosines_.push_back(static_cast<T>(std::cos(static_cast<double>(p) * f)));
      sines_.push_back(static_cast<T>(std::sin(static_cast<double>(p) * f)));
    }
  }
  positions_ = positions;
}

template <class T>
void rope(ThreadPool& pool, const RopeTable<T>& table, const int64_t* positions, T* x, int64_t rows, int64_t heads, bool back) {
  const tensor::Timed timed("rope");
  const int64_t size = table.head_size(), half = size / 2;
  for_parts(pool, rows, rows_per_tile(heads * size), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T *cosine = table.cosines(positions[r]), *sine = table.sines(positions[r]);
      const T sign = back ? T(-1) : T(1);
      for (int64_t h = 0; h < heads; ++h) {
        T *first = x + (r * heads + h) * size, *second = first + half;
        for (int64_t j = 0; j < half; ++j) {
          const T a = first[j], b = second[j], s = sign * sine[j];
          first[j] = a * cosine[j] - b * s;
          second[j] = b * cosine[j] + a * s;
        }
      }
    }
  });
}

template class RopeTable<float>;
template class RopeTable<double>;
template void rope(ThreadPool&, const RopeTable<float>&, const int64_t*, float*, int64_t, int64_t, bool);
template void rope(ThreadPool&, const RopeTable<double>&, const int64_t*, double*, int64_t, int64_t, bool);

}  // namespace mm::ops
