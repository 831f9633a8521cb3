// SPDX-License-Identifier: Apache-2.0
// A contrastive model, Hugging Face's CLIPModel: a vision tower and a text tower whose vectors of a pair are to be alike. The
// loss spans the pairs of all micro-batches of a step, on all ranks, and so a step is: forward of every micro-batch, the loss,
// backward of every micro-batch.
#pragma once

#include <memory>
#include <span>

#include "trainer/comm/comm.h"
#include "trainer/data/sample.h"
#include "trainer/model/dual_tower_config.h"
#include "trainer/model/micro_batch.h"
#include "trainer/model/param.h"
#include "trainer/tensor/thread_pool.h"

namespace mm::model {

// Pairs of one picture and one text each. Throws a data Error that names a sample which is none, or does not fit the model.
void pack_pairs(const DualTowerConfig& config, std::span<const data::Sample> samples, MicroBatch& out);

struct DualTowerGroups {
  comm::Comm* tp = nullptr;
  comm::Comm* data = nullptr;  // ranks with other pairs
};

template <class T>
class DualTower {
 public:
  // The store, the pool and the groups outlive the model.
  DualTower(const DualTowerConfig& config, ParamStore<T>& params, tensor::ThreadPool& pool, const DualTowerGroups& groups = {},
            bool recompute = false);
  ~DualTower();
  // The slots of a step are used from 0 up.
  void forward(int slot, const MicroBatch& batch);
  // Collective. Of the slots [0, slots): this rank's part of the loss summed over all pairs.
  double loss(int slots, double scale);
  // Adds scale * d(sum) / d(parameter).
  void backward(int slot, const MicroBatch& batch);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

extern template class DualTower<float>;
extern template class DualTower<double>;

}  // namespace mm::model
