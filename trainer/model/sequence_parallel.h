// SPDX-License-Identifier: Apache-2.0
// Tensor parallelism with sequence parallelism (Korthikanti et al. 2022): between products the rows of an activation are dealt
// out over the tensor-parallel ranks; a product that makes features gathers the rows, one that sums over features leaves each
// rank the sum of its rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/tensor/buffer.h"
#include "trainer/tensor/thread_pool.h"

namespace mm::model {

template <class T>
class SequenceParallel {
 public:
  // Rank t holds the rows [bounds[t], bounds[t + 1]). tp is null where there is one rank.
  SequenceParallel(comm::Comm* tp, std::span<const int64_t> bounds) : tp_(tp), bounds_(bounds) {}
  bool alone() const { return tp_ == nullptr; }
  int64_t all() const { return bounds_.back(); }
  int64_t begin() const { return bounds_[rank()]; }
  int64_t held() const { return bounds_[rank() + 1] - begin(); }
  // All rows, from the held ones of every rank; these themselves where there is one.
  const T* gather(const T* held, int64_t width, tensor::Buffer<T>& room) const;
  // The same where the held rows already stand in their place.
  void gather_in_place(T* rows, int64_t width) const;
  // The sum over the ranks of their [all, width], of the held rows; lies inside `partial`.
  T* reduce(T* partial, int64_t width) const;

 private:
  size_t rank() const { return tp_ ? static_cast<size_t>(tp_->rank()) : 0; }
  std::vector<int64_t> elements(int64_t width) const;

  comm::Comm* tp_;
  std::span<const int64_t> bounds_;
};

// y = a + b + bias, row by row; a and bias may be null, y may be a or b.
template <class T>
void add_rows(tensor::ThreadPool& pool, const T* a, const T* b, const T* bias, T* y, int64_t rows, int64_t width);

extern template class SequenceParallel<float>;
extern template class SequenceParallel<double>;

}  // namespace mm::model
