// SPDX-License-Identifier: Apache-2.0
#include "trainer/ops/activation.h"

#include <cmath>

#include "trainer/ops/lanes.h"
#include "trainer/ops/tiles.h"
#include "trainer/tensor/profile.h"

namespace mm::ops {
namespace {

template <class T>
struct Exact {
  static T value(T x) { return T(0.5) * x * (T(1) + std::erf(x * T(0.70710678118654752440))); }
  static T slope(T x) {
    return T(0.5) * (T(1) + std::erf(x * T(0.70710678118654752440))) +
           x * T(0.39894228040143267794) * exponential(T(-0.5) * x * x);
  }
};

template <class T>
struct Tanh {
  static constexpr T scale = T(1.59576912160573071176), cubic = T(0.044715);  // 2 sqrt(2 / pi)
  static T value(T x) { return x * sigmoid(scale * (x + cubic * x * x * x)); }
  static T slope(T x) {
    const T s = sigmoid(scale * (x + cubic * x * x * x));
    return s + x * s * (T(1) - s) * scale * (T(1) + T(3) * cubic * x * x);
  }
};

template <class T>
struct Quick {
  static T value(T x) { return x * sigmoid(T(1.702) * x); }
  static T slope(T x) {
    const T s = sigmoid(T(1.702) * x);
    return s + T(1.702) * x * s * (T(1) - s);
  }
};

template <class T, class Body>
void with_kind(Gelu kind, const Body& body) {
  switch (kind) {
    case Gelu::exact:
      return body(Exact<T>{});
    case Gelu::tanh:
      return body(Tanh<T>{});
    case Gelu::quick:
      return body(Quick<T>{});
  }
}

}  // namespace

template <class T>
void gelu(ThreadPool& pool, Gelu kind, const T* x, T* y, int64_t n) {
  const tensor::Timed timed("activation");
  with_kind<T>(kind, [&](auto f) {
    for_parts(pool, n, elements_per_tile, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = f.value(x[i]);
    });
  });
}

template <class T>
void gelu_backward(ThreadPool& pool, Gelu kind, const T* x, T* gradient, int64_t n) {
  const tensor::Timed timed("activation gradient");
  with_kind<T>(kind, [&](auto f) {
    for_parts(pool, n, elements_per_tile, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) gradient[i] *= f.slope(x[i]);
    });
  });
}

template <class T>
void swiglu(ThreadPool& pool, const T* gate, const T* up, T* y, int64_t n) {
  const tensor::Timed timed("activation");
  for_parts(pool, n, elements_per_tile, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = gate[i] * sigmoid(gate[i]) * up[i];
  });
}

template <class T>
void swiglu_backward(ThreadPool& pool, const T* gate, const T* up, const T* dy, T* dgate, T* dup, int64_t n) {
  const tensor::Timed timed("activation gradient");
  for_parts(pool, n, elements_per_tile, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T g = gate[i], s = sigmoid(g), d = dy[i];
      dup[i] = d * g * s;
      dgate[i] = d * up[i] * s * (T(1) + g * (T(1) - s));
    }
  });
}

#define MM_INSTANTIATE(T)                                                \
  template void gelu(ThreadPool&, Gelu, const T*, T*, int64_t);          \
  template void gelu_backward(ThreadPool&, Gelu, const T*, T*, int64_t); \
  template void swiglu(ThreadPool&, const T*, const T*, T*, int64_t);    \
  template void swiglu_backward(ThreadPool&, const T*, const T*, const T*, T*, T*, int64_t);
MM_INSTANTIATE(float)
MM_INSTANTIATE(double)
#undef MM_INSTANTIATE

}  // namespace mm::ops
