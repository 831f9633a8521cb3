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
void EncoderStage<T>::forward(int replica, int slot, const MicroBatch& batch) {
  const auto r = static_cast<size_t>(replica), at = static_cast<size_t>(slot);
  if (slots_[r].size() <= at) slots_[r].resize(at + 1);
  if (!slots_[r][at]) slots_[r][at] = std::make_unique<Saved>(features_.saved());
  features_.forward(groups_[r], batch, *slots_[r][at]);
}

template <class T>
void EncoderStage<T>::backward(int replica, int slot, const MicroBatch& batch) {
  const auto r = static_cast<size_t>(replica);
  features_.backward(groups_[r], batch, nullptr, nullptr, *slots_[r].at(static_cast<size_t>(slot)));
}

template class EncoderStage<float>;
template class EncoderStage<double>;

}  // namespace mm::model
