// SPDX-License-Identifier: Apache-2.0
// What a rank computes that has the vision tower and the projector and nothing else. It makes features for every replica of the
// decoder, micro-batch by micro-batch; what it begins with a replica's first stage comes in the order of that stage's passes.
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
  // Forward, and on their way to the first stage.
  void make(int replica, int slot, const MicroBatch& batch);
  void send(int replica, int slot, const MicroBatch& batch);
  // Waits for the features' gradients; then the parameters'.
  void take(int replica, int slot, const MicroBatch& batch);
  void backward(int replica, int slot, const MicroBatch& batch);

 private:
  using Saved = typename ImageFeatures<T>::Saved;
  Saved& saved(int replica, int slot);

  std::vector<comm::Comm*> groups_;
  ImageFeatures<T> features_;
  std::vector<std::vector<std::unique_ptr<Saved>>> slots_;  // of each replica
};

extern template class EncoderStage<float>;
extern template class EncoderStage<double>;

}  // namespace mm::model
