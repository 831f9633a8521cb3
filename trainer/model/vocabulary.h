// SPDX-License-Identifier: Apache-2.0
// The two ends of a language model, whose vocabulary is dealt out over the tensor-parallel ranks: the embedding of tokens, and
// the final norm, the head and the loss. Only rows with a label reach the head.
#pragma once

#include "trainer/model/config.h"
#include "trainer/model/layers.h"
#include "trainer/model/row_plan.h"
#include "trainer/tensor/buffer.h"

namespace mm::model {

template <class T>
class Embedding {
 public:
  Embedding(const Context<T>& context, const TextConfig& config);
  // x [held rows, hidden]; rows of image features are left as they are or become 0.
  void forward(const RowPlan& plan, T* x);
  void backward(const RowPlan& plan, const T* gradient);

 private:
  std::span<const int32_t> own(std::span<const int32_t> ids);  // counted from the first of this rank; -1: another's, or none

  Context<T> context_;
  const T* w_;
  T* dw_;
  int64_t first_, count_, hidden_;
  std::vector<int32_t> own_;
  tensor::Buffer<T> partial_, gathered_;
};

// What the loss of a label is, besides its cross entropy.
struct LossOptions {
  double label_smoothing = 0;  // this part of the target is spread evenly over the vocabulary (Szegedy et al. 2015)
  double z_loss = 0;           // times the square of the logarithm of the softmax's denominator (PaLM, Chowdhery et al. 2022)
};

template <class T>
class Head {
 public:
  struct Saved {
    tensor::Buffer<T> statistics, normed, logits;
  };
  // `embeds`: this rank also has the embedding, which says that its gradient is ready where head and embedding are one.
  Head(const Context<T>& context, const TextConfig& config, const LossOptions& options, bool embeds);
  // Logits of the rows with a label, [rows, this rank's part of the vocabulary], from their hidden states, the held ones.
  const T* logits(const RowPlan& plan, const T* x, Saved& saved);
  // The sum of the losses of these; on the first tensor-parallel rank, 0 on others. The logits become their gradients.
  double loss(const RowPlan& plan, Saved& saved);
  void backward(const RowPlan& plan, double scale, const T* x, Saved& saved, T* dx);

 private:
  void acquire();
  void release();

  Context<T> context_;
  bool tied_, embeds_;
  LossOptions options_;
  int64_t first_, vocabulary_;
  RmsNorm<T> norm_;
  Linear<T> head_;
  tensor::Buffer<T> gathered_, dnormed_, tops_, sums_;
};

extern template class Embedding<float>;
extern template class Embedding<double>;
extern template class Head<float>;
extern template class Head<double>;

}  // namespace mm::model
