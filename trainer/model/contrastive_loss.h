// SPDX-License-Identifier: Apache-2.0
// The contrastive losses over the pairs of all ranks: InfoNCE in both directions (Radford et al. 2021) and SigLIP's sigmoid
// loss (Zhai et al. 2023). With x a picture's and y a text's vector, each of length 1, and logit(i, j) = exp(logit_scale) y_i .
// x_j:
//
//   InfoNCE  the mean of -log softmax_j(logit(i, j))[i] and -log softmax_j(logit(j, i))[i], summed over i
//   sigmoid  the sum over i and j of -log sigmoid(z (logit(i, j) + logit_bias)), z = 1 for a pair, else -1
//
// Every rank has the vectors of its own pairs, and gathers those of all. It computes the rows of the logits that belong to its
// own pairs, which the tensor-parallel ranks share out among them.
#pragma once

#include "trainer/model/layers.h"
#include "trainer/tensor/buffer.h"

namespace mm::model {

template <class T>
class ContrastiveLoss {
 public:
  // `data`: the ranks that have other pairs, null where there are none.
  ContrastiveLoss(const Context<T>& context, comm::Comm* data, bool sigmoid, int64_t size);
  // pictures and texts [pairs, size] become this rank's part of scale times their gradients, which the tensor-parallel ranks
  // add up. Returns the part of the summed loss that this rank counts.
  double run(T* pictures, T* texts, int64_t pairs, double scale);

 private:
  void gather(const T* own, T* all);
  // Of this rank's rows against all: their loss; the gradients are added to.
  double infonce_rows(const T* rows, const T* all, T* drows, T* dall, double scale);
  double sigmoid_rows(const T* rows, const T* all, T* drows, T* dall, double scale);
  // From the gradients of the logits, which stand in their place.
  void spread(const T* rows, const T* all, T* drows, T* dall);

  Context<T> context_;
  comm::Comm* data_;
  bool sigmoid_;
  int64_t size_;
  const T *scale_, *bias_ = nullptr;
  T *dscale_, *dbias_ = nullptr;

  // of one run
  std::vector<int64_t> bounds_;                 // where each rank's pairs begin among all
  int64_t all_ = 0, first_ = 0, own_rows_ = 0;  // pairs of all, and this rank's rows of logits
  tensor::Buffer<T> all_pictures_, all_texts_, dpictures_, dtexts_, drows_, logits_;
  tensor::Buffer<double> losses_;
  std::vector<int32_t> labels_;
};

extern template class ContrastiveLoss<float>;
extern template class ContrastiveLoss<double>;

}  // namespace mm::model
