// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/adamw.h"

#include <algorithm>
#include <cmath>

namespace mm::optim {

std::vector<Tile> trained_tiles(const std::vector<model::ParamSpec>& specs, comm::Range range, int64_t most) {
  std::vector<Tile> tiles;
  int64_t offset = 0;
  for (const model::ParamSpec& spec : specs) {
    const int64_t begin = std::max(range.begin, offset), end = std::min(range.end, offset + spec.size());
    offset += spec.size();
    if (!spec.trained()) continue;
    for (int64_t at = begin; at < end; at += most) tiles.push_back({at, std::min(end, at + most), spec.decays()});
  }
  return tiles;
}

template <class T>
double sum_of_squares(const T* data, const std::vector<Tile>& tiles, tensor::ThreadPool& pool) {
  std::vector<double> sums(tiles.size());
  pool.parallel_for(static_cast<int64_t>(tiles.size()), [&](int64_t k) {
    const Tile& tile = tiles[static_cast<size_t>(k)];
    double sum = 0;
    for (int64_t i = tile.begin; i < tile.end; ++i) sum += static_cast<double>(data[i]) * static_cast<double>(data[i]);
    sums[static_cast<size_t>(k)] = sum;
  });
  double sum = 0;
  for (double s : sums) sum += s;
  return sum;
}

template <class T>
AdamW<T>::AdamW(const std::vector<model::ParamSpec>& specs, comm::Range owned, AdamWOptions options)
    : options_(options),
      owned_(owned),
      tiles_(trained_tiles(specs, owned)),
      m_(static_cast<size_t>(owned.size())),
      v_(static_cast<size_t>(owned.size())) {}

template <class T>
void AdamW<T>::step(int64_t t, double lr, double gradient_scale, T* values, const T* gradients, tensor::ThreadPool& pool) {
  const double beta1 = options_.beta1, beta2 = options_.beta2;
  // m / (1 - beta1^t) and v / (1 - beta2^t) are folded into the step size and the root.
  const T step_size = static_cast<T>(lr / (1 - std::pow(beta1, static_cast<double>(t))));
  const T root_scale = static_cast<T>(std::sqrt(1 - std::pow(beta2, static_cast<double>(t))));
  const T b1 = static_cast<T>(beta1), c1 = static_cast<T>(1 - beta1), b2 = static_cast<T>(beta2),
          c2 = static_cast<T>(1 - beta2);
  const T eps = static_cast<T>(options_.eps), scale = static_cast<T>(gradient_scale);
  pool.parallel_for(static_cast<int64_t>(tiles_.size()), [&](int64_t k) {
    const Tile& tile = tiles_[static_cast<size_t>(k)];
    const T keep = tile.decays ? static_cast<T>(1 - lr * options_.weight_decay) : T{1};
    const int64_t n = tile.end - tile.begin;
    T* p = values + tile.begin;
    const T* g = gradients + tile.begin;
    T* m = m_.data() + (tile.begin - owned_.begin);
    T* v = v_.data() + (tile.begin - owned_.begin);
    for (int64_t i = 0; i < n; ++i) {
      const T x = g[i] * scale;
      m[i] = b1 * m[i] + c1 * x;
      v[i] = b2 * v[i] + c2 * (x * x);
      p[i] = p[i] * keep - step_size * (m[i] / (std::sqrt(v[i]) / root_scale + eps));
    }
  });
}

template class AdamW<float>;
template class AdamW<double>;
template double sum_of_squares<float>(const float*, const std::vector<Tile>&, tensor::ThreadPool&);
template double sum_of_squares<double>(const double*, const std::vector<Tile>&, tensor::ThreadPool&);

}  // namespace mm::optim
