// SPDX-License-Identifier: Apache-2.0
// Layers as values: a layer holds where its parameters and their gradients lie. A gradient pointer is null where the parameter
// is not trained; then nothing is computed for it.
#pragma once

#include <string>

#include "common/error.h"
#include "trainer/model/param.h"
#include "trainer/model/sequence_parallel.h"
#include "trainer/ops/linear.h"
#include "trainer/ops/norm.h"
#include "trainer/tensor/thread_pool.h"

namespace mm::model {

// What the layers of a rank work with. A group is null where this rank is alone in it.
template <class T>
struct Context {
  tensor::ThreadPool& pool;
  ParamStore<T>& params;
  comm::Comm* tp = nullptr;
  comm::Comm* cp = nullptr;

  // Throws a usage Error where a tensor-parallel rank would get none of `parts` things.
  void deal_out(int64_t parts, const char* things) const {
    if (tp && parts < tp->size())
      throw usage_error("model: " + std::to_string(parts) + " " + things + " cannot be dealt out to tp " +
                        std::to_string(tp->size()) + " ranks");
  }
  T* value(const std::string& name) const { return params.value(params.index(name)); }
  T* gradient(const std::string& name) const { return params.gradient(params.index(name)); }
};

// Of a weight that tensor parallelism cuts this is the rank's slice: of the outputs, or of the inputs, and then the results are
// summed over the ranks.
template <class T>
struct Linear {
  const T *w = nullptr, *b = nullptr;
  T *dw = nullptr, *db = nullptr;
  int64_t in = 0, out = 0;

  Linear() = default;
  Linear(const Context<T>& context, const std::string& name) {
    const LocalParam& local = context.params.local()[context.params.index(name + ".weight")];
    out = local.shape[0];
    in = out == 0 ? 0 : local.size / out;
    w = context.value(name + ".weight");
    dw = context.gradient(name + ".weight");
    if (context.params.has(name + ".bias")) {
      b = context.value(name + ".bias");
      db = context.gradient(name + ".bias");
    }
  }
  // The map to `count` of the outputs.
  Linear outputs(int64_t begin, int64_t count) const {
    Linear part = *this;
    part.out = count;
    part.w += begin * in;
    if (b) part.b += begin;
    if (dw) part.dw += begin * in;
    if (db) part.db += begin;
    return part;
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

  // The same where inputs are cut: x has all rows, residual and y those that this rank holds.
  void forward_sum(tensor::ThreadPool& pool, const SequenceParallel<T>& rows, const T* x, const T* residual, T* y,
                   tensor::Buffer<T>& room) const {
    if (rows.alone()) return forward(pool, x, residual, y, rows.all());
    T* partial = room.need(rows.all() * out);
    ops::linear<T>(pool, x, w, nullptr, nullptr, partial, rows.all(), in, out);
    add_rows<T>(pool, residual, rows.reduce(partial, out), b, y, rows.held(), out);
  }
  // dy has the held rows, dy_all those of every rank, x and dx all of them.
  void backward_sum(tensor::ThreadPool& pool, const SequenceParallel<T>& rows, const T* x, const T* dy, const T* dy_all,
                    T* dx) const {
    if (dw) ops::linear_grad_weight(pool, dy_all, x, dw, rows.all(), in, out);
    if (db) ops::add_row_sums(pool, dy, db, rows.held(), out);
    ops::linear_grad_input(pool, dy_all, w, dx, rows.all(), in, out, false);
  }
};

template <class T>
struct LayerNorm {
  const T *w = nullptr, *b = nullptr;
  T *dw = nullptr, *db = nullptr;
  int64_t size = 0;
  double eps = 0;

  LayerNorm() = default;
  LayerNorm(const Context<T>& context, const std::string& name, int64_t width, double epsilon)
      : w(context.value(name + ".weight")),
        b(context.value(name + ".bias")),
        dw(context.gradient(name + ".weight")),
        db(context.gradient(name + ".bias")),
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
  RmsNorm(const Context<T>& context, const std::string& name, int64_t width, double epsilon)
      : w(context.value(name + ".weight")), dw(context.gradient(name + ".weight")), size(width), eps(epsilon) {}
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
