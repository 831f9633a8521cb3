// SPDX-License-Identifier: Apache-2.0
// AdamW (Loshchilov and Hutter, arXiv 1711.05101: decoupled decay) on a flat range of the parameters, so that ranks can share
// the work and the moments between them. Parameters that are not trained get nothing: no update, no decay, no part in the norm;
// decay is for tensors of two or more dimensions. Work is cut into tiles that depend on the parameters and on the range alone:
// the same bits for any number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/model/param.h"
#include "trainer/tensor/thread_pool.h"

namespace mm::optim {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
};

// A run of elements of trained parameters.
struct Tile {
  int64_t begin = 0, end = 0;
  bool decays = false;
};
// The trained elements of `range`, in order, in tiles of at most `most` elements that never span two parameters.
std::vector<Tile> trained_tiles(const std::vector<model::ParamSpec>& specs, comm::Range range, int64_t most = 1 << 14);

// The sum of squares of data[i] over the tiles, in double.
template <class T>
double sum_of_squares(const T* data, const std::vector<Tile>& tiles, tensor::ThreadPool& pool);

template <class T>
class AdamW {
 public:
  // `specs` in the order of the flat block; `owned` is the range of it that this object updates.
  AdamW(const std::vector<model::ParamSpec>& specs, comm::Range owned, AdamWOptions options);
  comm::Range owned() const { return owned_; }
  // Moments of the owned range: element i of the block is at [i - owned().begin].
  T* m() { return m_.data(); }
  T* v() { return v_.data(); }
  // Update number t (from 1) of values[i] by gradient_scale * gradients[i].
  void step(int64_t t, double lr, double gradient_scale, T* values, const T* gradients, tensor::ThreadPool& pool);

 private:
  AdamWOptions options_;
  comm::Range owned_;
  std::vector<Tile> tiles_;
  std::vector<T> m_, v_;
};

extern template class AdamW<float>;
extern template class AdamW<double>;
extern template double sum_of_squares<float>(const float*, const std::vector<Tile>&, tensor::ThreadPool&);
extern template double sum_of_squares<double>(const double*, const std::vector<Tile>&, tensor::ThreadPool&);

}  // namespace mm::optim
