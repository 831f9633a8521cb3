// SPDX-License-Identifier: Apache-2.0
// Activations, element by element, on n elements.
#pragma once

#include <cstdint>

#include "trainer/tensor/thread_pool.h"

namespace mm::ops {

// x Phi(x); x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)), which is the tanh form; x sigmoid(1.702 x). (Hendrycks, Gimpel 2016)
enum class Gelu { exact, tanh, quick };

template <class T>
void gelu(tensor::ThreadPool& pool, Gelu kind, const T* x, T* y, int64_t n);
// gradient *= the derivative at x.
template <class T>
void gelu_backward(tensor::ThreadPool& pool, Gelu kind, const T* x, T* gradient, int64_t n);

// y = gate sigmoid(gate) up (Shazeer 2020)
template <class T>
void swiglu(tensor::ThreadPool& pool, const T* gate, const T* up, T* y, int64_t n);
// dgate and dup from dy; dgate may be dy.
template <class T>
void swiglu_backward(tensor::ThreadPool& pool, const T* gate, const T* up, const T* dy, T* dgate, T* dup, int64_t n);

}  // namespace mm::ops
