// SPDX-License-Identifier: Apache-2.0
// What a rank computes that has the vision tower and the projector and nothing else. It makes features for every replica of the
// decoder, micro-batch by micro-batch, in the order in which their first stages ask for them.
#pragma once

#include <memory>
#include <vector>

#include "trainer/model/image_features.h"

namespace mm::model {

template <class T>
class EncoderStage {
 public:
  // groups[d]: the ranks of the first stage of replica d, then all encoder ranks. tp is null where there is one rank.
  EncoderStage(const VlmConfig& config, const Makers& makers, ParamStore<T>& params, tensor::ThreadPool& pool, comm::Comm* tp,
               std::vector<comm::Comm*> groups, bool recompute);
  void forward(int replica, int slot, const MicroBatch& batch);
  void backward(int replica, int slot, const MicroBatch& batch);

 private:
  using Saved = typename ImageFeatures<T>::Saved;
  std::vector<comm::Comm*> groups_;
  ImageFeatures<T> features_;
  std::vector<std::vector<std::unique_ptr<Saved>>> slots_;  // of each replica
};

extern template class EncoderStage<float>;
extern template class EncoderStage<double>;

}  // namespace mm::model
