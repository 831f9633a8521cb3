// SPDX-License-Identifier: Apache-2.0
// How the ops cut their work: a function of the shape alone, never of the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "trainer/tensor/thread_pool.h"

namespace mm::ops {

using tensor::ThreadPool;

// [0, n) in nearly equal parts.
struct Cut {
  int64_t n, parts;
  Cut(int64_t extent, int64_t largest) : n(extent), parts((extent + largest - 1) / largest) {}  // each at most `largest`
  static Cut into(int64_t extent, int64_t parts) {
    Cut cut(extent, std::max<int64_t>(1, extent));
    cut.parts = parts;
    return cut;
  }
  int64_t begin(int64_t part) const { return n * part / parts; }
  int64_t end(int64_t part) const { return n * (part + 1) / parts; }
};

// Calls body(begin, end) for the parts of [0, n).
template <class Body>
void for_parts(ThreadPool& pool, int64_t n, int64_t largest, const Body& body) {
  const Cut cut(n, largest);
  pool.parallel_for(cut.parts, [&](int64_t part) { body(cut.begin(part), cut.end(part)); });
}

// Calls body(row_begin, row_end, column_begin, column_end) for the tiles of a matrix.
template <class Body>
void for_tiles(ThreadPool& pool, const Cut& rows, const Cut& columns, const Body& body) {
  pool.parallel_for(rows.parts * columns.parts, [&](int64_t tile) {
    const int64_t r = tile / columns.parts, c = tile % columns.parts;
    body(rows.begin(r), rows.end(r), columns.begin(c), columns.end(c));
  });
}

// Elements that one tile of an element-by-element op takes, rows of a row op, columns of a sum over rows.
inline constexpr int64_t elements_per_tile = 16384;
inline constexpr int64_t columns_per_tile = 64;
inline int64_t rows_per_tile(int64_t row_size) {
  return std::max<int64_t>(1, elements_per_tile / std::max<int64_t>(1, row_size));
}

}  // namespace mm::ops
