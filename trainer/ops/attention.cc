// SPDX-License-Identifier: Apache-2.0
#include "trainer/ops/attention.h"

#include <cmath>

#include "trainer/ops/blas.h"
#include "trainer/ops/lanes.h"
#include "trainer/ops/tiles.h"
#include "trainer/tensor/buffer.h"

namespace mm::ops {
namespace {

constexpr int64_t block_rows = 128;

// One block of query rows [first, first + rows) of a sequence of `length`, and the keys that it sees.
struct Block {
  int64_t first, rows, keys;
  int64_t visible(int64_t row, bool causal) const { return causal ? first + row + 1 : keys; }
};

template <class Body>
void for_blocks(int64_t length, bool causal, const Body& body) {
  const Cut cut(length, block_rows);
  for (int64_t b = 0; b < cut.parts; ++b) body(Block{cut.begin(b), cut.end(b) - cut.begin(b), causal ? cut.end(b) : length});
}

}  // namespace

template <class T>
void attention(ThreadPool& pool, const AttentionShape& shape, const T* q, const T* k, const T* v, T* out, T* log_sums) {
  const int64_t heads = shape.heads, size = shape.head_size, group = heads / shape.kv_heads;
  const int64_t q_stride = heads * size, kv_stride = shape.kv_heads * size;
  const int64_t sequences = static_cast<int64_t>(shape.starts.size()) - 1;
  const T scale = static_cast<T>(1 / std::sqrt(static_cast<double>(size)));
  pool.parallel_for(sequences * heads, [&](int64_t tile) {
    const int64_t head = tile % heads, at = shape.starts[static_cast<size_t>(tile / heads)];
    const int64_t length = shape.starts[static_cast<size_t>(tile / heads) + 1] - at;
    const T *keys = k + at * kv_stride + head / group * size, *values = v + at * kv_stride + head / group * size;
    static thread_local tensor::Buffer<T> scratch;
    T* scores = scratch.need(std::min(length, block_rows) * length);
    for_blocks(length, shape.causal, [&](const Block& block) {
      const int64_t row0 = at + block.first;
      gemm(Op::none, Op::transposed, block.rows, block.keys, size, scale, q + row0 * q_stride + head * size, q_stride, keys,
           kv_stride, T(0), scores, block.keys);
      T inverse_sums[block_rows];
      for (int64_t r = 0; r < block.rows; ++r) {
        T* row = scores + r * block.keys;
        const int64_t n = block.visible(r, shape.causal);
        const T top = largest(row, n);
        for (int64_t j = 0; j < n; ++j) row[j] = exponential(row[j] - top);
        for (int64_t j = n; j < block.keys; ++j) row[j] = 0;
        const T total = sum<T>(n, [&](int64_t j) { return row[j]; });
        inverse_sums[r] = T(1) / total;
        log_sums[(row0 + r) * heads + head] = top + std::log(total);
      }
      T* to = out + row0 * q_stride + head * size;
      gemm(Op::none, Op::none, block.rows, size, block.keys, T(1), scores, block.keys, values, kv_stride, T(0), to, q_stride);
      for (int64_t r = 0; r < block.rows; ++r)
        for (int64_t j = 0; j < size; ++j) to[r * q_stride + j] *= inverse_sums[r];
    });
  });
}

// With P the probabilities and D the row sums of dout * out: dv = P^T dout, dS = P * (dout v^T - D), dq = scale dS k, dk =
// scale dS^T q.
template <class T>
void attention_backward(ThreadPool& pool, const AttentionShape& shape, const T* q, const T* k, const T* v, const T* out,
                        const T* dout, const T* log_sums, T* dq, T* dk, T* dv) {
  const int64_t heads = shape.heads, size = shape.head_size, group = heads / shape.kv_heads;
  const int64_t q_stride = heads * size, kv_stride = shape.kv_heads * size;
  const int64_t sequences = static_cast<int64_t>(shape.starts.size()) - 1;
  const T scale = static_cast<T>(1 / std::sqrt(static_cast<double>(size)));
  pool.parallel_for(sequences * shape.kv_heads, [&](int64_t tile) {
    const int64_t kv_head = tile % shape.kv_heads, at = shape.starts[static_cast<size_t>(tile / shape.kv_heads)];
    const int64_t length = shape.starts[static_cast<size_t>(tile / shape.kv_heads) + 1] - at;
    const int64_t kv_at = at * kv_stride + kv_head * size;
    for (int64_t r = 0; r < length; ++r) {
      std::fill_n(dk + kv_at + r * kv_stride, size, T(0));
      std::fill_n(dv + kv_at + r * kv_stride, size, T(0));
    }
    static thread_local tensor::Buffer<T> scratch;
    T* probabilities = scratch.need(2 * std::min(length, block_rows) * length);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for_blocks(length, shape.causal, [&](const Block& block) {
        const int64_t row0 = at + block.first, q_at = row0 * q_stride + head * size;
        T* gradients = probabilities + block.rows * block.keys;
        gemm(Op::none, Op::transposed, block.rows, block.keys, size, scale, q + q_at, q_stride, k + kv_at, kv_stride, T(0),
             probabilities, block.keys);
        gemm(Op::none, Op::transposed, block.rows, block.keys, size, T(1), dout + q_at, q_stride, v + kv_at, kv_stride, T(0),
             gradients, block.keys);
        for (int64_t r = 0; r < block.rows; ++r) {
          T *p = probabilities + r * block.keys, *g = gradients + r * block.keys;
          const T *o = out + q_at + r * q_stride, *go = dout + q_at + r * q_stride;
          const int64_t n = block.visible(r, shape.causal);
          const T log_sum = log_sums[(row0 + r) * heads + head];
          const T d = sum<T>(size, [&](int64_t j) { return o[j] * go[j]; });
          for (int64_t j = 0; j < n; ++j) {
            p[j] = exponential(p[j] - log_sum);
            g[j] = p[j] * (g[j] - d);
          }
          for (int64_t j = n; j < block.keys; ++j) p[j] = g[j] = 0;
        }
        gemm(Op::transposed, Op::none, block.keys, size, block.rows, T(1), probabilities, block.keys, dout + q_at, q_stride,
             T(1), dv + kv_at, kv_stride);
        gemm(Op::none, Op::none, block.rows, size, block.keys, scale, gradients, block.keys, k + kv_at, kv_stride, T(0),
             dq + q_at, q_stride);
        gemm(Op::transposed, Op::none, block.keys, size, block.rows, scale, gradients, block.keys, q + q_at, q_stride, T(1),
             dk + kv_at, kv_stride);
      });
    }
  });
}

#define MM_INSTANTIATE(T)                                                                                                \
  template void attention(ThreadPool&, const AttentionShape&, const T*, const T*, const T*, T*, T*);                     \
  template void attention_backward(ThreadPool&, const AttentionShape&, const T*, const T*, const T*, const T*, const T*, \
                                   const T*, T*, T*, T*);
MM_INSTANTIATE(float)
MM_INSTANTIATE(double)
#undef MM_INSTANTIATE

}  // namespace mm::ops
