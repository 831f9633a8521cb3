// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/vlm.h"

#include "common/error.h"
#include "trainer/model/stage.h"

namespace mm::model {

template <class T>
struct Vlm<T>::State {
  VlmConfig config;
  Stage<T> stage;
  MicroBatch batch;
};

template <class T>
Vlm<T>::Vlm(const VlmConfig& config, ParamStore<T>& params, tensor::ThreadPool& pool)
    : state_(new State{config, Stage<T>(config, chunks_of(config.text.layers, 0, 1, 1), params, pool), {}}) {}

template <class T>
Vlm<T>::~Vlm() = default;

template <class T>
double Vlm<T>::forward(std::span<const data::Sample> micro_batch) {
  pack(state_->config, micro_batch, state_->batch);
  return state_->stage.forward(0, 0, state_->batch, nullptr, nullptr);
}

template <class T>
void Vlm<T>::backward(double scale) {
  state_->stage.backward(0, 0, state_->batch, scale, nullptr, nullptr);
}

template <class T>
std::vector<T> Vlm<T>::next_token_logits(const data::Sample& sample) {
  if (sample.ids.empty()) throw data_error("model: sample " + sample.key + ": no token");
  data::Sample asking = sample;  // the position that is asked for is one with a label
  asking.labels.assign(asking.ids.size(), data::no_label);
  asking.labels.back() = 0;
  pack(state_->config, {&asking, 1}, state_->batch);
  const T* logits = state_->stage.logits(0, 0, state_->batch, nullptr);
  return {logits, logits + state_->config.text.vocabulary};
}

template class Vlm<float>;
template class Vlm<double>;

}  // namespace mm::model
