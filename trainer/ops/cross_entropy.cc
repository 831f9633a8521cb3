// SPDX-License-Identifier: Apache-2.0
#include "trainer/ops/cross_entropy.h"

#include <cmath>

#include "trainer/ops/lanes.h"
#include "trainer/ops/tiles.h"
#include "trainer/tensor/profile.h"

namespace mm::ops {

template <class T>
void cross_entropy(ThreadPool& pool, T* logits, const int32_t* labels, double* losses, int64_t rows, int64_t classes) {
  const tensor::Timed timed("cross entropy");
  for_parts(pool, rows, rows_per_tile(classes), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      T* row = logits + r * classes;
      const T top = largest(row, classes), at_label = row[labels[r]];
      for (int64_t j = 0; j < classes; ++j) row[j] = exponential(row[j] - top);
      const T total = sum<T>(classes, [&](int64_t j) { return row[j]; }), inverse = T(1) / total;
      losses[r] = std::log(static_cast<double>(total)) + (static_cast<double>(top) - static_cast<double>(at_label));
      for (int64_t j = 0; j < classes; ++j) row[j] *= inverse;
      row[labels[r]] -= T(1);
    }
  });
}

template void cross_entropy(ThreadPool&, float*, const int32_t*, double*, int64_t, int64_t);
template void cross_entropy(ThreadPool&, double*, const int32_t*, double*, int64_t, int64_t);

}  // namespace mm::ops
