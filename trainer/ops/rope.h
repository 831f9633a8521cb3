// SPDX-License-Identifier: Apache-2.0
// Rotary positions (Su et al. 2021), Hugging Face's half split: element j of a head turns with element j + size / 2 by the
// angle position * theta^(-2j / size). Angles, cosines and sines are computed in double and rounded once.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/tensor/thread_pool.h"

namespace mm::ops {

template <class T>
class RopeTable {
 public:
  RopeTable(int head_size, double theta) : head_size_(head_size), theta_(theta) {}
  void reach(int64_t positions);  // makes the table cover [0, positions)
  int head_size() const { return head_size_; }
  const T* cosines(int64_t position) const { return cosines_.data() + position * (head_size_ / 2); }
  const T* sines(int64_t position) const { return sines_.data() + position * (head_size_ / 2); }

 private:
  int head_size_;
  double theta_;
  int64_t positions_ = 0;
  std::vector<T> cosines_, sines_;
};

// Turns every head of x [rows, heads * head_size] in place; positions[rows] must be in the table. `back` turns the other way,
// which is the gradient.
template <class T>
void rope(tensor::ThreadPool& pool, const RopeTable<T>& table, const int64_t* positions, T* x, int64_t rows, int64_t heads,
          bool back);

}  // namespace mm::ops
