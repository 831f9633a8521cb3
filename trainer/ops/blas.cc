// SPDX-License-Identifier: Apache-2.0
#include "trainer/ops/blas.h"

#include <cblas.h>

namespace mm::ops {
namespace {

CBLAS_TRANSPOSE flag(Op op) {
  return op == Op::none ? CblasNoTrans : CblasTrans;
}

blasint narrow(int64_t n) {
  return static_cast<blasint>(n);
}

// The library is one for the process; from the first product on it stays on its caller's thread.
void on_one_thread() {
  static const bool once = (openblas_set_num_threads(1), true);
  static_cast<void>(once);
}

}  // namespace

void gemm(Op op_a, Op op_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda, const float* b,
          int64_t ldb, float beta, float* c, int64_t ldc) {
  on_one_thread();
  cblas_sgemm(CblasRowMajor, flag(op_a), flag(op_b), narrow(m), narrow(n), narrow(k), alpha, a, narrow(lda), b, narrow(ldb),
              beta, c, narrow(ldc));
}

void gemm(Op op_a, Op op_b, int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda, const double* b,
          int64_t ldb, double beta, double* c, int64_t ldc) {
  on_one_thread();
  cblas_dgemm(CblasRowMajor, flag(op_a), flag(op_b), narrow(m), narrow(n), narrow(k), alpha, a, narrow(lda), b, narrow(ldb),
              beta, c, narrow(ldc));
}

}  // namespace mm::ops
