// SPDX-License-Identifier: Apache-2.0
// The text encoder of a contrastive model: tokens, learned positions, causal layers.
#pragma once

#include <string>
#include <vector>

#include "trainer/model/dual_tower_config.h"
#include "trainer/model/encoder_layer.h"
#include "trainer/model/micro_batch.h"

namespace mm::model {

template <class T>
class TextTower {
 public:
  struct Saved {
    EncoderRows rows;
    std::vector<int32_t> ids, positions;  // of the held rows
    typename EncoderStack<T>::Saved layers;
  };
  TextTower(const Context<T>& context, const DualTowerConfig::Text& config, bool recompute);
  Saved saved() const;
  // Hidden states of the held ones of the batch's rows.
  const T* forward(const MicroBatch& batch, Saved& saved);
  void backward(Saved& saved, T* gradient);

 private:
  Context<T> context_;
  int64_t hidden_;
  const T *token_, *position_;
  T *token_gradient_, *position_gradient_;
  EncoderStack<T> layers_;
  tensor::Buffer<T> placed_;
};

extern template class TextTower<float>;
extern template class TextTower<double>;

}  // namespace mm::model
