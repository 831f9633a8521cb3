// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/adamw.h"

#include <cmath>

#include "trainer/ops/lanes.h"
#include "trainer/tensor/buffer.h"
#include "trainer/tensor/profile.h"

namespace mm::optim {
namespace {

template <class T>
struct Factors {
  T gradient, beta1, rest1, beta2, rest2, root, eps, step = 0, keep = 1;
};

// By value and without aliases, so that it becomes vector code.
template <class T>
void update(const Factors<T> f, int64_t n, T* __restrict p, const T* __restrict g, T* __restrict m, T* __restrict v) {
  for (int64_t i = 0; i < n; ++i) {
    const T x = g[i] * f.gradient;
    m[i] = f.beta1 * m[i] + f.rest1 * x;
    v[i] = f.beta2 * v[i] + f.rest2 * (x * x);
    p[i] = p[i] * f.keep - f.step * (m[i] / (std::sqrt(v[i]) * f.root + f.eps));
  }
}

}  // namespace

template <class T>
double sum_of_squares(std::span<const Piece<T>> pieces, tensor::ThreadPool& pool) {
  const tensor::Timed timed("squares of the gradients");
  static thread_local tensor::Buffer<double> kept;
  double* sums = kept.need(static_cast<int64_t>(pieces.size()));
  pool.parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t k) {
    const Piece<T>& piece = pieces[static_cast<size_t>(k)];
    const T* g = piece.gradient;
    const double sum =
        ops::sum<double>(piece.n, [&](int64_t i) { return static_cast<double>(g[i]) * static_cast<double>(g[i]); });
    sums[k] = sum;
  });
  double sum = 0;
  for (size_t k = 0; k < pieces.size(); ++k) sum += sums[k];
  return sum;
}

template <class T>
void adamw(const AdamWOptions& options, int64_t t, double lr, double gradient_scale, std::span<const Piece<T>> pieces,
           tensor::ThreadPool& pool) {
  const tensor::Timed timed("optimizer");
  const double beta1 = options.beta1, beta2 = options.beta2;
  // m / (1 - beta1^t) and v / (1 - beta2^t) are folded into the step size and the factor of the root.
  const double corrected = 1 - std::pow(beta1, static_cast<double>(t));
  const Factors<T> common = {.gradient = static_cast<T>(gradient_scale),
                             .beta1 = static_cast<T>(beta1),
                             .rest1 = static_cast<T>(1 - beta1),
                             .beta2 = static_cast<T>(beta2),
                             .rest2 = static_cast<T>(1 - beta2),
                             .root = static_cast<T>(1 / std::sqrt(1 - std::pow(beta2, static_cast<double>(t)))),
                             .eps = static_cast<T>(options.eps)};
  pool.parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t k) {
    const Piece<T>& piece = pieces[static_cast<size_t>(k)];
    Factors<T> factors = common;
    const double rate = lr * piece.lr_scale;
    factors.step = static_cast<T>(rate / corrected);
    factors.keep = piece.decays ? static_cast<T>(1 - rate * options.weight_decay) : T{1};
    update(factors, piece.n, piece.value, piece.gradient, piece.m, piece.v);
  });
}

#define MM_INSTANTIATE(T)                                                         \
  template double sum_of_squares(std::span<const Piece<T>>, tensor::ThreadPool&); \
  template void adamw(const AdamWOptions&, int64_t, double, double, std::span<const Piece<T>>, tensor::ThreadPool&);
MM_INSTANTIATE(float)
MM_INSTANTIATE(double)
#undef MM_INSTANTIATE

}  // namespace mm::optim
