// SPDX-License-Identifier: Apache-2.0
// What one rank computes of a vision-language model: some consecutive pieces ("chunks") of the decoder's layers, at the first
// the embedding and the pictures' features before them, at the last the head and the loss after them.
//
// A micro-batch that is under way has a slot of each chunk, which holds what its backward needs: its input and activations, or
// the input alone where layers are computed again. Slots are used again, so that steps of one size allocate nothing after the
// first. All ranks of a replica are given the same micro-batches in the same order and issue the same messages, whatever is in
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/model/config.h"
#include "trainer/model/image_features.h"
#include "trainer/model/micro_batch.h"
#include "trainer/model/param.h"
#include "trainer/model/partition.h"
#include "trainer/model/vocabulary.h"
#include "trainer/tensor/thread_pool.h"

namespace mm::model {

// The groups that a stage's ranks talk in; null or of one rank where this rank is alone.
struct StageGroups {
  comm::Comm *tp = nullptr, *cp = nullptr;
  // tp x cp of one replica on the first stage: the pictures are dealt out among them. Where the tower has ranks of its own,
  // these follow in the group, and `makers` says which they are.
  comm::Comm* pictures = nullptr;
  Makers makers = {};
};

struct StageOptions {
  bool recompute = false;  // keep only the inputs of layers
  LossOptions loss;
};

template <class T>
class Stage {
 public:
  // The store, the pool and the groups outlive the stage. Results do not depend on the number of threads, to the bit.
  Stage(const VlmConfig& config, std::vector<Chunk> chunks, ParamStore<T>& params, tensor::ThreadPool& pool,
        const StageGroups& groups = {}, const StageOptions& options = {});
  ~Stage();
  int chunks() const;
  // What this rank receives from the rank before and sends to the one after: elements of [held rows, hidden].
  int64_t boundary_elements(const MicroBatch& batch) const;
  // in and out are null at the ends of the model. Returns the sum of the losses of the labels that this rank counts: 0 but at
  // the head, where of the tensor-parallel ranks the first counts.
  double forward(int chunk, int slot, const MicroBatch& batch, const T* in, T* out);
  // Adds scale * d(sum) / d(parameter) of the forward into this slot, which it uses up.
  void backward(int chunk, int slot, const MicroBatch& batch, double scale, const T* dout, T* din);
  // Of the head's chunk: the logits of the rows with a label [rows, this rank's part of the vocabulary], in place of the loss.
  const T* logits(int chunk, int slot, const MicroBatch& batch, const T* in);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

extern template class Stage<float>;
extern template class Stage<double>;

}  // namespace mm::model
