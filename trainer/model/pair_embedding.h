// SPDX-License-Identifier: Apache-2.0
// From a tower's hidden states to one vector of length 1 for each picture or text: of its pooled row the norm, the projection,
// and the division by the 2-norm. Each is computed by the tensor-parallel rank that holds the pooled row; then all have all.
#pragma once

#include <string>
#include <vector>

#include "trainer/model/layers.h"
#include "trainer/tensor/buffer.h"

namespace mm::model {

template <class T>
class PairEmbedding {
 public:
  struct Saved {
    std::vector<int64_t> bounds;  // [tp + 1]: which of the pooled rows each rank holds
    std::vector<int64_t> rows;    // the held ones, numbered from the first held row of the tower
    int64_t tower_rows = 0;       // held rows of the tower
    tensor::Buffer<T> pooled, statistics, normed, projected, unit;
  };
  PairEmbedding(const Context<T>& context, const std::string& norm, const std::string& projection, int64_t hidden, double eps);
  int64_t size() const { return projection_.out; }
  // x: the held ones of all rows, which `row_bounds` deals out; `pooled`: the row of each picture or text, ascending. Returns
  // [pooled, size].
  const T* forward(const T* x, std::span<const int64_t> row_bounds, std::span<const int64_t> pooled, Saved& saved);
  // gradient [pooled, size] holds this rank's part and is overwritten; dx becomes the gradient of x.
  void backward(T* gradient, Saved& saved, T* dx);

 private:
  Context<T> context_;
  LayerNorm<T> norm_;
  Linear<T> projection_;
  tensor::Buffer<T> dprojected_, dnormed_, dpooled_;
};

extern template class PairEmbedding<float>;
extern template class PairEmbedding<double>;

}  // namespace mm::model
