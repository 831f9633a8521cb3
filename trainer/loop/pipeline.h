// SPDX-License-Identifier: Apache-2.0
// Runs the forward and backward passes of a step in the order of a schedule, on the rank's chunks of the model, and moves
// activations and their gradients between the ranks of the pipeline. The order is data (parallel/schedule.h); this is the loop
// that follows it: a receive is posted one action ahead, a send never blocks.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/model/micro_batch.h"
#include "trainer/model/stage.h"
#include "trainer/optim/sharded.h"
#include "trainer/parallel/mesh.h"
#include "trainer/parallel/schedule.h"
#include "trainer/tensor/buffer.h"

namespace mm::loop {

template <class T>
class Pipeline {
 public:
  Pipeline(parallel::Mesh& mesh, model::Stage<T>& stage, optim::Sharded<T>& sharded, parallel::ScheduleKind kind, int chunks);
  // Adds `scale` times the gradients of the micro-batches' summed losses; returns the part of the summed losses that this rank
  // counts. Collective over the replica's ranks, and the groups that their layers use.
  double run(std::span<const model::MicroBatch> batches, double scale);

 private:
  // A message's buffer, used again and again. `piece` is the one that it is for: activations of the piece before, or the
  // gradient of its own output from the piece after.
  struct Message {
    tensor::Buffer<T> buffer;
    comm::Pending pending;
  };
  using Key = std::tuple<int, bool, int>;  // piece, backward, micro-batch
  int piece_of(const parallel::Pass& pass) const { return pass.chunk * mesh_.layout.pp + mesh_.at.pp; }
  bool arrives(const parallel::Pass& pass) const;
  void post(const parallel::Pass& pass, std::span<const model::MicroBatch> batches);
  std::unique_ptr<Message> take();
  void send(const Key& key, std::unique_ptr<Message> message, int64_t elements);
  int tag(const Key& key) const;
  int slot_of(const parallel::Pass& pass);  // forward takes a slot of the chunk, backward gives it back

  parallel::Mesh& mesh_;
  model::Stage<T>& stage_;
  optim::Sharded<T>& sharded_;
  const parallel::ScheduleKind kind_;
  const int chunks_, pieces_;
  int micro_batches_ = 0;
  std::vector<parallel::Pass> passes_;  // of this stage
  std::vector<std::vector<int>> slots_;  // of each chunk: the micro-batch that it holds, or -1
  std::vector<std::unique_ptr<Message>> free_, sending_;
  std::map<Key, std::unique_ptr<Message>> arriving_;
};

extern template class Pipeline<float>;
extern template class Pipeline<double>;

}  // namespace mm::loop
