// SPDX-License-Identifier: Apache-2.0
// AdamW (Loshchilov and Hutter, arXiv 1711.05101: decoupled decay) on pieces of parameters.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/tensor/thread_pool.h"

namespace mm::optim {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
};

// n elements of one parameter, with their gradients and moments. Pieces are the unit of work of a thread.
template <class T>
struct Piece {
  T* value = nullptr;
  const T* gradient = nullptr;
  T *m = nullptr, *v = nullptr;
  int64_t n = 0;
  bool decays = false;
  double lr_scale = 1;
};

// The sum of squares of the gradients, in double; the order of the sum depends on the pieces alone.
template <class T>
double sum_of_squares(std::span<const Piece<T>> pieces, tensor::ThreadPool& pool);

// Update number t (from 1) of the values by gradient_scale * gradient.
template <class T>
void adamw(const AdamWOptions& options, int64_t t, double lr, double gradient_scale, std::span<const Piece<T>> pieces,
           tensor::ThreadPool& pool);

}  // namespace mm::optim
