// SPDX-License-Identifier: Apache-2.0
// The vision-language model: a CLIP or SigLIP tower, a projector and a Llama or Qwen2 decoder (Hugging Face's
// LlavaForConditionalGeneration), forward and hand-written backward on packed tokens: the sequences of a micro-batch lie one
// after another without padding, attention stays inside each.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "trainer/data/sample.h"
#include "trainer/model/config.h"
#include "trainer/model/param.h"
#include "trainer/tensor/thread_pool.h"

namespace mm::model {

// name, shape and whether the loss reaches it, for every parameter of the configuration.
std::vector<ParamSpec> param_specs(const VlmConfig& config);

template <class T>
class Vlm {
 public:
  // The store and the pool outlive the model. Results do not depend on the number of threads, to the bit.
  Vlm(const VlmConfig& config, ParamStore<T>& params, tensor::ThreadPool& pool);
  ~Vlm();
  // Sum over the trained labels of -log p(label); keeps what backward needs.
  double forward(std::span<const data::Sample> micro_batch);
  // Adds scale * d(sum) / d(parameter) of the last forward to the gradients. Once after each forward, which it uses up.
  void backward(double scale);
  // Logits at the last position of one sequence; labels are not read, and what a forward kept is lost.
  std::vector<T> next_token_logits(const data::Sample& sample);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

extern template class Vlm<float>;
extern template class Vlm<double>;

}  // namespace mm::model
