// SPDX-License-Identifier: Apache-2.0
// The innermost part of a matrix product: a tile of 6 rows and 2 vectors of columns stays in registers while k goes by. Columns
// come from a packed panel, tile_columns of each k side by side; rows are read where they lie.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace mm::ops::kernel {

template <class T>
struct VectorOf {
  using type [[gnu::vector_size(32)]] = T;
};
template <class T>
using Vector = typename VectorOf<T>::type;
template <class T>
inline constexpr int width = 32 / static_cast<int>(sizeof(T));
inline constexpr int tile_rows = 6;
template <class T>
inline constexpr int tile_columns = 2 * width<T>;

template <class T>
inline Vector<T> load(const T* from) {
  Vector<T> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <class T>
inline void store(T* to, Vector<T> v) {
  std::memcpy(to, &v, sizeof v);
}

template <class T>
struct Tile {
  Vector<T> at[tile_rows][2];
};

// Sum over p in [0, k) of row[i][p * step] * panel[p]; step is 1 where unit_step.
template <class T, bool unit_step>
inline Tile<T> accumulate(int64_t k, const std::array<const T*, tile_rows>& row, int64_t step, const T* panel) {
  Tile<T> sum = {};
  const T *r0 = row[0], *r1 = row[1], *r2 = row[2], *r3 = row[3], *r4 = row[4], *r5 = row[5];
  for (int64_t p = 0; p < k; ++p) {
    const Vector<T> left = load(panel), right = load(panel + width<T>);
    panel += tile_columns<T>;
    const int64_t at = unit_step ? p : p * step;
    sum.at[0][0] += r0[at] * left, sum.at[0][1] += r0[at] * right;
    sum.at[1][0] += r1[at] * left, sum.at[1][1] += r1[at] * right;
    sum.at[2][0] += r2[at] * left, sum.at[2][1] += r2[at] * right;
    sum.at[3][0] += r3[at] * left, sum.at[3][1] += r3[at] * right;
    sum.at[4][0] += r4[at] * left, sum.at[4][1] += r4[at] * right;
    sum.at[5][0] += r5[at] * left, sum.at[5][1] += r5[at] * right;
  }
  return sum;
}

// Rows and columns change places, in registers, by exchanging ever smaller off-diagonal blocks.
template <class T>
inline void transpose(Vector<T> (&r)[width<T>]) {
  using Mask = Vector<std::conditional_t<sizeof(T) == 4, int32_t, int64_t>>;
  constexpr int w = width<T>;
  const auto exchange = [&]<int distance>(std::integral_constant<int, distance>) {
    Mask upper, lower;
    for (int j = 0; j < w; ++j) {
      upper[j] = (j & distance) ? w + j - distance : j;
      lower[j] = (j & distance) ? w + j : j + distance;
    }
    for (int i = 0; i < w; ++i) {
      if (i & distance) continue;
      const Vector<T> a = r[i], b = r[i + distance];
      r[i] = __builtin_shuffle(a, b, upper);
      r[i + distance] = __builtin_shuffle(a, b, lower);
    }
  };
  if constexpr (w == 8) exchange(std::integral_constant<int, 4>{});
  exchange(std::integral_constant<int, 2>{});
  exchange(std::integral_constant<int, 1>{});
}

}  // namespace mm::ops::kernel
