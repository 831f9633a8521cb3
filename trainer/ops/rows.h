// SPDX-License-Identifier: Apache-2.0
// Moving rows between matrices [rows, size]: embedding, selection and their gradients; pictures to patches.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/tensor/thread_pool.h"

namespace mm::ops {

// to[i] = from[index[i]]; a row with a negative index stays as it is.
template <class Index, class T>
void gather_rows(tensor::ThreadPool& pool, const T* from, std::span<const Index> index, T* to, int64_t size);
// to[index[i]] = from[i]; no index twice.
template <class T>
void scatter_rows(tensor::ThreadPool& pool, const T* from, std::span<const int64_t> index, T* to, int64_t size);
// to[index[i]] += from[i] in the order of i; an index may come again, a negative one is left out.
template <class T>
void add_to_rows(tensor::ThreadPool& pool, const T* from, std::span<const int32_t> index, T* to, int64_t size);
// x[i] += from[i mod period], row by row.
template <class T>
void add_repeated(tensor::ThreadPool& pool, const T* from, T* x, int64_t rows, int64_t period, int64_t size);
// sums[p] += sum over i of x[i * period + p]
template <class T>
void add_period_sums(tensor::ThreadPool& pool, const T* x, T* sums, int64_t rows, int64_t period, int64_t size);
template <class T>
void scale(tensor::ThreadPool& pool, T factor, T* x, int64_t n);

// The patches of one picture, row-major over the picture, each [3, patch, patch] as a convolution's kernel; value v of channel
// c becomes table[c * 256 + v]. rgb is [edge, edge, 3]; what is over at the right and at the bottom is left out.
template <class T>
void patches(const uint8_t* rgb, int64_t edge, int64_t patch, const T* table, T* out);

}  // namespace mm::ops
