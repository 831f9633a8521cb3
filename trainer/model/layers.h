// SPDX-License-Identifier: Apache-2.0
// Layers as values: a layer holds where its parameters and their gradients lie. A gradient pointer is null where the parameter
// is not trained; then nothing is computed for it.
#pragma once

#include <string>

#include "trainer/model/param.h"
#include "trainer/ops/linear.h"
#include "trainer/ops/norm.h"
#include "trainer/tensor/thread_pool.h"

namespace mm::model {

// Looks parameters up by name.
template <class T>
struct ParamAccess {
  ParamStore<T>& store;

  bool has(const std::string& name) const {
    for (const ParamSpec& spec : store.specs())
      if (spec.name == name) return true;
    return false;
  }
  T* value(const std::string& name) const { return store.value(store.index(name)); }
  T* gradient(const std::string& name) const {
    const size_t i = store.index(name);
    return store.specs()[i].trained() ? store.gradient(i) : nullptr;
  }
};

template <class T>
struct Linear {
  const T *w = nullptr, *b = nullptr;
  T *dw = nullptr, *db = nullptr;
  int64_t in = 0, out = 0;

  Linear() = default;
  Linear(const ParamAccess<T>& params, const std::string& name) {
    const ParamSpec& spec = params.store.specs()[params.store.index(name + ".weight")];
    out = spec.shape[0];
    in = spec.size() / out;
    w = params.value(name + ".weight");
    dw = params.gradient(name + ".weight");
    if (params.has(name + ".bias")) {
      b = params.value(name + ".bias");
      db = params.gradient(name + ".bias");
    }
  }
  // y = x w^T + b + residual
  void forward(tensor::ThreadPool& pool, const T* x, const T* residual, T* y, int64_t rows) const {
    ops::linear(pool, x, w, b, residual, y, rows, in, out);
  }
  // Parameter gradients are added to; dx is written or added to, or null.
  void backward(tensor::ThreadPool& pool, const T* x, const T* dy, T* dx, int64_t rows, bool accumulate) const {
    if (dw) ops::linear_grad_weight(pool, dy, x, dw, rows, in, out);
    if (db) ops::add_row_sums(pool, dy, db, rows, out);
    if (dx) ops::linear_grad_input(pool, dy, w, dx, rows, in, out, accumulate);
  }
};

template <class T>
struct LayerNorm {
  const T *w = nullptr, *b = nullptr;
  T *dw = nullptr, *db = nullptr;
  int64_t size = 0;
  double eps = 0;

  LayerNorm() = default;
  LayerNorm(const ParamAccess<T>& params, const std::string& name, int64_t width, double epsilon)
      : w(params.value(name + ".weight")),
        b(params.value(name + ".bias")),
        dw(params.gradient(name + ".weight")),
        db(params.gradient(name + ".bias")),
        size(width),
        eps(epsilon) {}
  // statistics [2 rows]: means, then inverse deviations
  void forward(tensor::ThreadPool& pool, const T* x, T* y, T* statistics, int64_t rows) const {
    ops::layer_norm(pool, x, w, b, y, statistics, statistics + rows, rows, size, eps);
  }
  void backward(tensor::ThreadPool& pool, const T* x, const T* statistics, const T* dy, T* dx, int64_t rows,
                bool accumulate) const {
    ops::layer_norm_backward(pool, x, w, statistics, statistics + rows, dy, dx, dw, db, rows, size, accumulate);
  }
};

template <class T>
struct RmsNorm {
  const T* w = nullptr;
  T* dw = nullptr;
  int64_t size = 0;
  double eps = 0;

  RmsNorm() = default;
  RmsNorm(const ParamAccess<T>& params, const std::string& name, int64_t width, double epsilon)
      : w(params.value(name + ".weight")), dw(params.gradient(name + ".weight")), size(width), eps(epsilon) {}
  // statistics [rows]: inverse root mean squares
  void forward(tensor::ThreadPool& pool, const T* x, T* y, T* statistics, int64_t rows) const {
    ops::rms_norm(pool, x, w, y, statistics, rows, size, eps);
  }
  void backward(tensor::ThreadPool& pool, const T* x, const T* statistics, const T* dy, T* dx, int64_t rows,
                bool accumulate) const {
    ops::rms_norm_backward(pool, x, w, statistics, dy, dx, dw, rows, size, accumulate);
  }
};

}  // namespace mm::model
