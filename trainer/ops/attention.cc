// SPDX-License-Identifier: Apache-2.0
#include "trainer/ops/attention.h"

#include <cmath>
#include <limits>

#include "trainer/ops/gemm.h"
#include "trainer/ops/lanes.h"
#include "trainer/ops/tiles.h"
#include "trainer/tensor/buffer.h"
#include "trainer/tensor/profile.h"

namespace mm::ops {
namespace {

constexpr int64_t block_rows = 128;
template <class T>
constexpr T nothing = -std::numeric_limits<T>::infinity();  // the logarithm of an empty sum

// One block of query rows of a segment, and the first keys of it, which are those that any of its rows sees.
struct Block {
  int64_t q_row, rows, ahead, keys;
  bool causal;
  int64_t visible(int64_t row) const { return causal ? std::clamp<int64_t>(row + ahead + 1, 0, keys) : keys; }
};

template <class Body>
void for_blocks(const Segment& segment, bool causal, const Body& body) {
  const Cut cut(segment.q_rows, block_rows);
  for (int64_t b = 0; b < cut.parts; ++b) {
    const int64_t begin = cut.begin(b), end = cut.end(b);
    const int64_t keys = causal ? std::clamp<int64_t>(end + segment.ahead, 0, segment.k_rows) : segment.k_rows;
    body(Block{segment.q_begin + begin, end - begin, begin + segment.ahead, keys, causal});
  }
}

// Calls body(segments of one sequence, head) for each sequence and each of `heads`.
template <class Body>
void for_sequences(ThreadPool& pool, std::span<const Segment> segments, int64_t heads, const Body& body) {
  static thread_local std::vector<size_t> starts;
  starts.clear();
  for (size_t i = 0; i < segments.size(); ++i)
    if (i == 0 || segments[i].sequence != segments[i - 1].sequence) starts.push_back(i);
  starts.push_back(segments.size());
  const size_t* at = starts.data();  // of this thread; the others' `starts` are their own
  pool.parallel_for(static_cast<int64_t>(starts.size() - 1) * heads, [&](int64_t tile) {
    const size_t* run = at + tile / heads;
    body(segments.subspan(run[0], run[1] - run[0]), tile % heads);
  });
}

// The products of a query's and a key's elements that a matrix of scores takes.
double scores_of(const AttentionShape& shape) {
  double scores = 0;
  for (const Segment& segment : shape.segments)
    for_blocks(segment, shape.causal, [&](const Block& block) { scores += static_cast<double>(block.rows * block.keys); });
  return scores * static_cast<double>(shape.heads * shape.head_size);
}

template <class T>
T inverse_root(int64_t size) {
  return static_cast<T>(1 / std::sqrt(static_cast<double>(size)));
}

template <class T>
void fill_rows(T* x, int64_t rows, int64_t stride, int64_t size, T value) {
  for (int64_t r = 0; r < rows; ++r) std::fill_n(x + r * stride, size, value);
}

// Scores of a row become its share of the result: log_sum takes them in, the row becomes exp(score - log_sum), and what is
// returned is the factor for the result so far.
template <class T>
T take_in(T* row, int64_t n, T& log_sum) {
  if (n == 0) return T(1);
  const T top = largest(row, n);
  for (int64_t j = 0; j < n; ++j) row[j] = exponential(row[j] - top);
  const T total = sum<T>(n, [&](int64_t j) { return row[j]; });
  T weight = T(1) / total, keep = 0;
  const T here = top + std::log(total);
  if (log_sum == nothing<T>) {
    log_sum = here;
  } else {
    const T high = std::max(log_sum, here);
    const T both = high + std::log(exponential(log_sum - high) + exponential(here - high));
    keep = exponential(log_sum - both);
    weight *= exponential(here - both);
    log_sum = both;
  }
  for (int64_t j = 0; j < n; ++j) row[j] *= weight;
  return keep;
}

}  // namespace

void whole_sequences(std::span<const int64_t> starts, std::vector<Segment>& segments) {
  segments.clear();
  for (size_t s = 0; s + 1 < starts.size(); ++s) {
    const int64_t rows = starts[s + 1] - starts[s];
    segments.push_back({static_cast<int64_t>(s), starts[s], rows, starts[s], rows, 0});
  }
}

template <class T>
void attention(ThreadPool& pool, const AttentionShape& shape, const T* q, const T* k, const T* v, T* out, T* log_sums,
               bool merge) {
  const tensor::Timed timed("attention", 4 * scores_of(shape));
  const int64_t heads = shape.heads, size = shape.head_size;
  const int64_t q_stride = heads * size, kv_stride = shape.kv_heads * size;
  const T scale = inverse_root<T>(size);
  for_sequences(pool, shape.segments, heads, [&](std::span<const Segment> segments, int64_t head) {
    static thread_local tensor::Buffer<T> scratch;
    for (const Segment& segment : segments)
      if (!merge) fill_rows(log_sums + segment.q_begin * heads + head, segment.q_rows, heads, 1, nothing<T>);
    for (const Segment& segment : segments) {
      const int64_t kv_at = segment.k_begin * kv_stride + shape.kv_head(head) * size;
      for_blocks(segment, shape.causal, [&](const Block& block) {
        T* to = out + block.q_row * q_stride + head * size;
        T* logs = log_sums + block.q_row * heads + head;
        T* scores = scratch.need(block.rows * block.keys);
        bool fresh = true;
        for (int64_t r = 0; r < block.rows; ++r) fresh &= logs[r * heads] == nothing<T>;
        if (block.keys == 0) {
          if (fresh) fill_rows(to, block.rows, q_stride, size, T(0));
          return;
        }
        multiply<T>({.m = block.rows,
                     .n = block.keys,
                     .k = size,
                     .a = plain(q + block.q_row * q_stride + head * size, q_stride),
                     .b = transposed(k + kv_at, kv_stride),
                     .c = scores,
                     .c_stride = block.keys,
                     .scale = scale});
        for (int64_t r = 0; r < block.rows; ++r) {
          T *row = scores + r * block.keys, *result = to + r * q_stride;
          const int64_t n = block.visible(r);
          const T keep = take_in(row, n, logs[r * heads]);
          std::fill(row + n, row + block.keys, T(0));
          if (fresh) continue;
          for (int64_t j = 0; j < size; ++j) result[j] *= keep;
        }
        multiply<T>({.m = block.rows,
                     .n = size,
                     .k = block.keys,
                     .a = plain<T>(scores, block.keys),
                     .b = plain(v + kv_at, kv_stride),
                     .c = to,
                     .c_stride = q_stride,
                     .add = fresh ? nullptr : to});
      });
    }
  });
}

// With P the probabilities and D the row sums of dout * out: dv = P^T dout, dS = P * (dout v^T - D), dq = scale dS k, dk =
// scale dS^T q.
template <class T>
void attention_backward(ThreadPool& pool, const AttentionShape& shape, const T* q, const T* k, const T* v, const T* out,
                        const T* dout, const T* log_sums, T* dq, T* dk, T* dv, bool accumulate) {
  const tensor::Timed timed("attention gradient", 10 * scores_of(shape));
  const int64_t heads = shape.heads, size = shape.head_size;
  const int64_t q_stride = heads * size, kv_stride = shape.kv_heads * size;
  const T scale = inverse_root<T>(size);
  for_sequences(pool, shape.segments, shape.kv_heads, [&](std::span<const Segment> segments, int64_t kv_head) {
    static thread_local tensor::Buffer<T> scratch;
    for (const Segment& segment : segments) {
      if (accumulate) break;
      const int64_t kv_at = segment.k_begin * kv_stride + kv_head * size;
      fill_rows(dk + kv_at, segment.k_rows, kv_stride, size, T(0));
      fill_rows(dv + kv_at, segment.k_rows, kv_stride, size, T(0));
      const int64_t first = shape.head_begin(kv_head), count = shape.head_begin(kv_head + 1) - first;
      fill_rows(dq + segment.q_begin * q_stride + first * size, segment.q_rows, q_stride, count * size, T(0));
    }
    for (const Segment& segment : segments) {
      const int64_t kv_at = segment.k_begin * kv_stride + kv_head * size;
      for (int64_t head = shape.head_begin(kv_head); head < shape.head_begin(kv_head + 1); ++head) {
        for_blocks(segment, shape.causal, [&](const Block& block) {
          if (block.keys == 0) return;
          const int64_t q_at = block.q_row * q_stride + head * size;
          T* probabilities = scratch.need(2 * block.rows * block.keys);
          T* gradients = probabilities + block.rows * block.keys;
          multiply<T>({.m = block.rows,
                       .n = block.keys,
                       .k = size,
                       .a = plain(q + q_at, q_stride),
                       .b = transposed(k + kv_at, kv_stride),
                       .c = probabilities,
                       .c_stride = block.keys,
                       .scale = scale});
          multiply<T>({.m = block.rows,
                       .n = block.keys,
                       .k = size,
                       .a = plain(dout + q_at, q_stride),
                       .b = transposed(v + kv_at, kv_stride),
                       .c = gradients,
                       .c_stride = block.keys});
          for (int64_t r = 0; r < block.rows; ++r) {
            T *p = probabilities + r * block.keys, *g = gradients + r * block.keys;
            const T *o = out + q_at + r * q_stride, *go = dout + q_at + r * q_stride;
            const int64_t n = block.visible(r);
            const T log_sum = log_sums[(block.q_row + r) * heads + head];
            const T d = sum<T>(size, [&](int64_t j) { return o[j] * go[j]; });
            for (int64_t j = 0; j < n; ++j) {
              p[j] = exponential(p[j] - log_sum);
              g[j] = p[j] * (g[j] - d);
            }
            for (int64_t j = n; j < block.keys; ++j) p[j] = g[j] = 0;
          }
          multiply<T>({.m = block.keys,
                       .n = size,
                       .k = block.rows,
                       .a = transposed<T>(probabilities, block.keys),
                       .b = plain(dout + q_at, q_stride),
                       .c = dv + kv_at,
                       .c_stride = kv_stride,
                       .add = dv + kv_at});
          multiply<T>({.m = block.rows,
                       .n = size,
                       .k = block.keys,
                       .a = plain<T>(gradients, block.keys),
                       .b = plain(k + kv_at, kv_stride),
                       .c = dq + q_at,
                       .c_stride = q_stride,
                       .scale = scale,
                       .add = dq + q_at});
          multiply<T>({.m = block.keys,
                       .n = size,
                       .k = block.rows,
                       .a = transposed<T>(gradients, block.keys),
                       .b = plain(q + q_at, q_stride),
                       .c = dk + kv_at,
                       .c_stride = kv_stride,
                       .scale = scale,
                       .add = dk + kv_at});
        });
      }
    }
  });
}

#define MM_INSTANTIATE(T)                                                                                                \
  template void attention(ThreadPool&, const AttentionShape&, const T*, const T*, const T*, T*, T*, bool);               \
  template void attention_backward(ThreadPool&, const AttentionShape&, const T*, const T*, const T*, const T*, const T*, \
                                   const T*, T*, T*, T*, bool);
MM_INSTANTIATE(float)
MM_INSTANTIATE(double)
#undef MM_INSTANTIATE

}  // namespace mm::ops
