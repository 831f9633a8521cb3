// SPDX-License-Identifier: Apache-2.0
// Softmax cross entropy over the rows of logits [rows, classes].
#pragma once

#include <cstdint>

#include "trainer/tensor/thread_pool.h"

namespace mm::ops {

// losses[r] = -log softmax(logits[r])[labels[r]]; logits become their gradients, softmax - one at the label. Labels are in [0,
// classes).
template <class T>
void cross_entropy(tensor::ThreadPool& pool, T* logits, const int32_t* labels, double* losses, int64_t rows, int64_t classes);

}  // namespace mm::ops
