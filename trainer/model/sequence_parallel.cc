// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/sequence_parallel.h"

#include <algorithm>

#include "trainer/ops/tiles.h"

namespace mm::model {

template <class T>
std::vector<int64_t> SequenceParallel<T>::elements(int64_t width) const {
  std::vector<int64_t> bounds(bounds_.begin(), bounds_.end());
  for (int64_t& bound : bounds) bound *= width;
  return bounds;
}

template <class T>
const T* SequenceParallel<T>::gather(const T* held_rows, int64_t width, tensor::Buffer<T>& room) const {
  if (alone()) return held_rows;
  T* rows = room.need(all() * width);
  std::copy_n(held_rows, held() * width, rows + begin() * width);
  gather_in_place(rows, width);
  return rows;
}

template <class T>
void SequenceParallel<T>::gather_in_place(T* rows, int64_t width) const {
  if (!alone()) tp_->all_gather(rows, std::span<const int64_t>(elements(width)));
}

template <class T>
T* SequenceParallel<T>::reduce(T* partial, int64_t width) const {
  if (alone()) return partial;
  tp_->reduce_scatter(partial, std::span<const int64_t>(elements(width)));
  return partial + begin() * width;
}

template <class T>
void add_rows(tensor::ThreadPool& pool, const T* a, const T* b, const T* bias, T* y, int64_t rows, int64_t width) {
  ops::for_parts(pool, rows, ops::rows_per_tile(width), [&](int64_t r0, int64_t r1) {
    for (int64_t r = r0; r < r1; ++r)
      for (int64_t c = 0, i = r * width; c < width; ++c, ++i) y[i] = (a ? a[i] : T(0)) + b[i] + (bias ? bias[c] : T(0));
  });
}

template class SequenceParallel<float>;
template class SequenceParallel<double>;
template void add_rows(tensor::ThreadPool&, const float*, const float*, const float*, float*, int64_t, int64_t);
template void add_rows(tensor::ThreadPool&, const double*, const double*, const double*, double*, int64_t, int64_t);

}  // namespace mm::model
