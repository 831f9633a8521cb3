// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/encoder_stage.h"

namespace mm::model {

template <class T>
EncoderStage<T>::EncoderStage(const VlmConfig& config, const Makers& makers, ParamStore<T>& params, tensor::ThreadPool& pool,
                              comm::Comm* tp, std::vector<comm::Comm*> groups, bool recompute)
    : groups_(std::move(groups)),
      features_(Context<T>{pool, params, tp && tp->size() > 1 ? tp : nullptr, nullptr}, makers, true, config, recompute),
      slots_(groups_.size()) {}

template <class T>
typename EncoderStage<T>::Saved& EncoderStage<T>::saved(int replica, int slot) {
  std::vector<std::unique_ptr<Saved>>& slots = slots_[static_cast<size_t>(replica)];
  const auto at = static_cast<size_t>(slot);
  if (slots.size() <= at) slots.resize(at + 1);
  if (!slots[at]) slots[at] = std::make_unique<Saved>(features_.saved());
  return *slots[at];
}

template <class T>
void EncoderStage<T>::make(int replica, int slot, const MicroBatch& batch) {
  features_.make(groups_[static_cast<size_t>(replica)], batch, saved(replica, slot));
}

template <class T>
void EncoderStage<T>::send(int replica, int slot, const MicroBatch& batch) {
  features_.begin_send(groups_[static_cast<size_t>(replica)], batch, saved(replica, slot));
}

template <class T>
void EncoderStage<T>::take(int replica, int slot, const MicroBatch& batch) {
  features_.take(groups_[static_cast<size_t>(replica)], batch, saved(replica, slot));
}

template <class T>
void EncoderStage<T>::backward(int replica, int slot, const MicroBatch& batch) {
  features_.backward_made(groups_[static_cast<size_t>(replica)], batch, saved(replica, slot));
}

template class EncoderStage<float>;
template class EncoderStage<double>;

}  // namespace mm::model
