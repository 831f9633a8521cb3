// SPDX-License-Identifier: Apache-2.0
// b is packed, as many columns at a time as the last cache holds, in panels of tile_columns columns, block of k by block of k;
// then each tile of c takes its rows of a, and a panel stays in the first cache while they pass. Rows of a are read in place
// where they are contiguous; where columns are, a tile packs its rows first, for in place each element would be on a page of
// its own.
#include "trainer/ops/gemm.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "trainer/ops/gemm_kernel.h"
#include "trainer/ops/tiles.h"
#include "trainer/tensor/buffer.h"

namespace mm::ops {
namespace {

using kernel::tile_columns;
using kernel::tile_rows;
using kernel::Vector;
using kernel::width;

constexpr int64_t block_depth = 384;                   // of k: a panel of so many is 24 KB
constexpr int64_t block_rows = 12 * tile_rows;         // of c, for one tile of work
constexpr int64_t block_columns = 512;                 // the same
constexpr int64_t panels_at_once = 8;                  // packed side by side, so that b is read along its rows
constexpr int64_t rows_ahead = 6;                      // that packing fetches: rows are on other pages
constexpr int64_t packed_elements = int64_t{3} << 17;  // of b at a time, but columns_at_least
constexpr int64_t columns_at_least = 256;

Cut depth_of(int64_t k) {
  return Cut::into(k, std::max<int64_t>(1, (k + block_depth - 1) / block_depth));
}

// b's rows [p0, p1) and `panels` panels of columns from `column` on, of b's n columns: to[panel][p][tile_columns], with zeros
// beyond the last column.
template <class T>
void pack_panels(const Operand<T>& b, int64_t n, int64_t p0, int64_t p1, int64_t column, int64_t panels, T* to) {
  constexpr int64_t full = tile_columns<T>, w = width<T>;
  const int64_t depth = (p1 - p0) * full;
  const int64_t whole = std::min(panels, (n - column) / full);
  if (b.column_step == 1) {
    for (int64_t p = p0; p < p1; ++p) {
      const T* from = b.data + p * b.row_step + column;
      T* at = to + (p - p0) * full;
      for (int64_t j = 0; j < whole; ++j, from += full, at += depth) {
        __builtin_prefetch(from + rows_ahead * b.row_step);
        kernel::store(at, kernel::load(from));
        kernel::store(at + w, kernel::load(from + w));
      }
    }
  } else {
    for (int64_t j = 0; j < whole; ++j) {
      const T* from = b.data + (column + j * full) * b.column_step;
      T* at = to + j * depth;
      int64_t p = p0;
      for (; p + w <= p1; p += w, at += w * full)
        for (int64_t half = 0; half < 2; ++half) {
          Vector<T> r[width<T>];
          for (int64_t i = 0; i < w; ++i) r[i] = kernel::load(from + (half * w + i) * b.column_step + p);
          kernel::transpose<T>(r);
          for (int64_t i = 0; i < w; ++i) kernel::store(at + i * full + half * w, r[i]);
        }
      for (; p < p1; ++p, at += full)
        for (int64_t i = 0; i < full; ++i) at[i] = from[i * b.column_step + p];
    }
  }
  if (whole == panels) return;
  column += whole * full;
  to += whole * depth;
  for (int64_t p = p0; p < p1; ++p, to += full)
    for (int64_t i = 0; i < full; ++i) to[i] = column + i < n ? b.data[p * b.row_step + (column + i) * b.column_step] : T(0);
}

// Rows [r0, r1) of a, whose columns are contiguous, in groups of tile_rows: to[group][p][tile_rows], with zeros where there are
// fewer rows.
template <class T>
void pack_rows(const Operand<T>& a, int64_t r0, int64_t r1, int64_t p0, int64_t p1, T* to) {
  const int64_t k = p1 - p0, whole = (r1 - r0) / tile_rows, left = (r1 - r0) % tile_rows;
  for (int64_t p = 0; p < k; ++p) {
    const T* from = a.data + r0 + (p0 + p) * a.column_step;
    T* at = to + p * tile_rows;
    for (int64_t group = 0; group < whole; ++group, from += tile_rows, at += k * tile_rows) {
      __builtin_prefetch(from + rows_ahead * a.column_step);
      std::memcpy(at, from, tile_rows * sizeof(T));
    }
    for (int64_t i = 0; left > 0 && i < tile_rows; ++i) at[i] = i < left ? from[i] : T(0);
  }
}

// b's columns [j0, j1), block by block of k; a block's panels stand one after another.
template <class T>
struct Packed {
  const T* data;
  int64_t panels;
  const T* panel(int64_t index, int64_t p0, int64_t p1) const {
    return data + (p0 * panels + index * (p1 - p0)) * tile_columns<T>;
  }
};

template <class T>
Vector<T> splat(T x) {
  return x - Vector<T>{};
}

// What one row of a tile becomes: with bias and add the first time, onto what is there later.
template <class T>
inline void finish_row(Vector<T> left, Vector<T> right, T scale, const T* bias, const T* onto, T* to) {
  constexpr int w = width<T>;
  if (scale != T(1)) {
    left *= scale;
    right *= scale;
  }
  if (bias) {
    left += kernel::load(bias);
    right += kernel::load(bias + w);
  }
  if (onto) {
    left += kernel::load(onto);
    right += kernel::load(onto + w);
  }
  kernel::store(to, left);
  kernel::store(to + w, right);
}

// `tile` goes to rows [row, row + rows) and columns [column, column + columns) of c.
template <class T>
inline void finish(const Product<T>& product, bool first, const kernel::Tile<T>& tile, int64_t row, int64_t rows,
                   int64_t column, int64_t columns) {
  T* to = product.c + row * product.c_stride + column;
  const T* onto = first ? product.add : product.c;
  if (onto) onto += row * product.c_stride + column;
  const T* bias = first && product.bias ? product.bias + column : nullptr;
  if (columns == tile_columns<T>) {
    for (int64_t i = 0; i < rows; ++i)
      finish_row(tile.at[i][0], tile.at[i][1], product.scale, bias, onto ? onto + i * product.c_stride : nullptr,
                 to + i * product.c_stride);
    return;
  }
  T padded[2][tile_columns<T>] = {};
  if (bias) std::copy_n(bias, columns, padded[1]);
  for (int64_t i = 0; i < rows; ++i) {
    if (onto) std::copy_n(onto + i * product.c_stride, columns, padded[0]);
    finish_row(tile.at[i][0], tile.at[i][1], product.scale, bias ? padded[1] : nullptr, onto ? padded[0] : nullptr, padded[0]);
    std::copy_n(padded[0], columns, to + i * product.c_stride);
  }
}

// c's rows [r0, r1) and panels [j0, j1) of the packed columns, which begin at `column` of c.
template <class T>
void compute(const Product<T>& product, const Packed<T>& packed, int64_t column, int64_t r0, int64_t r1, int64_t j0,
             int64_t j1) {
  alignas(64) T rows[block_rows * block_depth];
  const Operand<T>& a = product.a;
  const bool in_place = a.column_step == 1;
  const Cut depth = depth_of(product.k);
  for (int64_t block = 0; block < depth.parts; ++block) {
    const int64_t p0 = depth.begin(block), p1 = depth.end(block), k = p1 - p0;
    if (!in_place) pack_rows(a, r0, r1, p0, p1, rows);
    for (int64_t j = j0; j < j1; ++j) {
      const T* panel = packed.panel(j, p0, p1);
      const int64_t first = column + j * tile_columns<T>, columns = std::min<int64_t>(tile_columns<T>, product.n - first);
      for (int64_t r = r0; r < r1; r += tile_rows) {
        const int64_t count = std::min<int64_t>(tile_rows, r1 - r);
        std::array<const T*, tile_rows> row;
        for (int64_t i = 0; i < tile_rows; ++i)
          row[static_cast<size_t>(i)] =
              in_place ? a.data + (r + std::min(i, count - 1)) * a.row_step + p0 : rows + (r - r0) * k + i;
        const kernel::Tile<T> tile =
            in_place ? kernel::accumulate<T, true>(k, row, 1, panel) : kernel::accumulate<T, false>(k, row, tile_rows, panel);
        finish(product, block == 0, tile, r, count, first, columns);
      }
    }
  }
}

}  // namespace

template <class T>
void multiply(const Product<T>& product) {
  if (product.m == 0 || product.n == 0) return;
  static thread_local tensor::Buffer<T> scratch;
  const int64_t panels = (product.n + tile_columns<T> - 1) / tile_columns<T>;
  const Cut depth = depth_of(product.k);
  T* to = scratch.need(std::max<int64_t>(1, product.k * panels * tile_columns<T>));
  const Packed<T> packed{to, panels};
  for (int64_t block = 0; block < depth.parts; ++block) {
    const int64_t p0 = depth.begin(block), p1 = depth.end(block);
    pack_panels(product.b, product.n, p0, p1, 0, panels, to + p0 * panels * tile_columns<T>);
  }
  for (int64_t r = 0; r < product.m; r += block_rows)
    compute(product, packed, 0, r, std::min(product.m, r + block_rows), 0, panels);
}

template <class T>
void multiply(tensor::ThreadPool& pool, const Product<T>& product) {
  if (product.m == 0 || product.n == 0) return;
  static thread_local tensor::Buffer<T> scratch;
  const Cut depth = depth_of(product.k);
  const int64_t most = std::max<int64_t>(columns_at_least, packed_elements / std::max<int64_t>(1, product.k)) / tile_columns<T>;
  const int64_t all = (product.n + tile_columns<T> - 1) / tile_columns<T>;
  for (int64_t begin = 0; begin < all; begin += most) {
    const int64_t panels = std::min(most, all - begin), column = begin * tile_columns<T>;
    T* to = scratch.need(std::max<int64_t>(1, product.k * panels * tile_columns<T>));
    const Packed<T> packed{to, panels};
    for_tiles(pool, depth, Cut(panels, panels_at_once), [&](int64_t p0, int64_t p1, int64_t j0, int64_t j1) {
      pack_panels(product.b, product.n, p0, p1, column + j0 * tile_columns<T>, j1 - j0,
                  to + (p0 * panels + j0 * (p1 - p0)) * tile_columns<T>);
    });
    const Cut rows((product.m + tile_rows - 1) / tile_rows, block_rows / tile_rows);
    const Cut columns(panels, block_columns / tile_columns<T>);
    for_tiles(pool, rows, columns, [&](int64_t r0, int64_t r1, int64_t j0, int64_t j1) {
      compute(product, packed, column, r0 * tile_rows, std::min(product.m, r1 * tile_rows), j0, j1);
    });
  }
}

template void multiply(const Product<float>&);
template void multiply(const Product<double>&);
template void multiply(ThreadPool&, const Product<float>&);
template void multiply(ThreadPool&, const Product<double>&);

}  // namespace mm::ops
