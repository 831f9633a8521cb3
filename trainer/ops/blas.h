// SPDX-License-Identifier: Apache-2.0
// Matrix products on one thread, row-major: c[m, n] = alpha op(a) op(b) + beta c. Parallelism is the caller's, over fixed
// tiles: the library's own threads would change the bits with their number.
#pragma once

#include <cstdint>

namespace mm::ops {

enum class Op { none, transposed };

void gemm(Op op_a, Op op_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda, const float* b,
          int64_t ldb, float beta, float* c, int64_t ldc);
void gemm(Op op_a, Op op_b, int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda, const double* b,
          int64_t ldb, double beta, double* c, int64_t ldc);

}  // namespace mm::ops
