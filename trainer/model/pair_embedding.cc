// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/pair_embedding.h"

#include <algorithm>
#include <cmath>

#include "trainer/ops/lanes.h"
#include "trainer/ops/rows.h"

namespace mm::model {

template <class T>
PairEmbedding<T>::PairEmbedding(const Context<T>& context, const std::string& norm, const std::string& projection,
                                int64_t hidden, double eps)
    : context_(context), norm_(context, norm, hidden, eps), projection_(context, projection) {}

template <class T>
const T* PairEmbedding<T>::forward(const T* x, std::span<const int64_t> row_bounds, std::span<const int64_t> pooled,
                                   Saved& saved) {
  const auto rank = static_cast<size_t>(context_.tp ? context_.tp->rank() : 0);
  saved.bounds.clear();
  for (int64_t bound : row_bounds)
    saved.bounds.push_back(std::lower_bound(pooled.begin(), pooled.end(), bound) - pooled.begin());
  saved.rows.clear();
  for (int64_t i = saved.bounds[rank]; i < saved.bounds[rank + 1]; ++i)
    saved.rows.push_back(pooled[static_cast<size_t>(i)] - row_bounds[rank]);
  saved.tower_rows = row_bounds[rank + 1] - row_bounds[rank];
  const SequenceParallel<T> split(context_.tp, saved.bounds);
  const int64_t held = split.held();
  T* rows = saved.pooled.need(held * norm_.size);
  ops::gather_rows<int64_t, T>(context_.pool, x, saved.rows, rows, norm_.size);
  norm_.forward(context_.pool, rows, saved.normed.need(held * norm_.size), saved.statistics.need(2 * held), held);
  T *projected = saved.projected.need(held * size()), *unit = saved.unit.need(split.all() * size());
  projection_.forward(context_.pool, saved.normed.get(), nullptr, projected, held);
  T* mine = unit + split.begin() * size();
  for (int64_t r = 0; r < held; ++r) {
    const T* from = projected + r * size();
    const T inverse = 1 / std::sqrt(ops::sum<T>(size(), [&](int64_t j) { return from[j] * from[j]; }));
    for (int64_t j = 0; j < size(); ++j) mine[r * size() + j] = from[j] * inverse;
  }
  split.gather_in_place(unit, size());
  return unit;
}

// With e = x / |x|: dx = (de - e (e . de)) / |x|.
template <class T>
void PairEmbedding<T>::backward(T* gradient, Saved& saved, T* dx) {
  const SequenceParallel<T> split(context_.tp, saved.bounds);
  const int64_t held = split.held();
  const T* dunit = split.reduce(gradient, size());
  T* dprojected = dprojected_.need(held * size());
  for (int64_t r = 0; r < held; ++r) {
    const T *from = saved.projected.get() + r * size(), *d = dunit + r * size();
    const T inverse = 1 / std::sqrt(ops::sum<T>(size(), [&](int64_t j) { return from[j] * from[j]; }));
    const T along = ops::sum<T>(size(), [&](int64_t j) { return from[j] * d[j]; }) * inverse * inverse;
    for (int64_t j = 0; j < size(); ++j) dprojected[r * size() + j] = (d[j] - from[j] * along) * inverse;
  }
  T *dnormed = dnormed_.need(held * norm_.size), *dpooled = dpooled_.need(held * norm_.size);
  projection_.backward(context_.pool, saved.normed.get(), dprojected, dnormed, held, false);
  norm_.backward(context_.pool, saved.pooled.get(), saved.statistics.get(), dnormed, dpooled, held, false);
  std::fill_n(dx, saved.tower_rows * norm_.size, T(0));
  ops::scatter_rows<T>(context_.pool, dpooled, saved.rows, dx, norm_.size);
}

template class PairEmbedding<float>;
template class PairEmbedding<double>;

}  // namespace mm::model
