// SPDX-License-Identifier: Apache-2.0
// The forward and backward passes of a step on this rank, whatever the model is.
#pragma once

#include <memory>
#include <span>

#include "trainer/loop/setup.h"
#include "trainer/model/micro_batch.h"
#include "trainer/optim/sharded.h"
#include "trainer/parallel/mesh.h"
#include "trainer/tensor/thread_pool.h"

namespace mm::loop {

template <class T>
class Passes {
 public:
  virtual ~Passes() = default;
  // Adds `scale` times the gradients of the micro-batches' summed losses; returns the part of the summed losses that this rank
  // counts. Collective over the replica's ranks, and the groups that their layers use.
  virtual double run(std::span<const model::MicroBatch> batches, double scale) = 0;
};

// All arguments outlive the result.
template <class T>
std::unique_ptr<Passes<T>> make_passes(const Setup& setup, parallel::Mesh& mesh, model::ParamStore<T>& params,
                                       optim::Sharded<T>& sharded, tensor::ThreadPool& pool);

extern template std::unique_ptr<Passes<float>> make_passes(const Setup&, parallel::Mesh&, model::ParamStore<float>&,
                                                           optim::Sharded<float>&, tensor::ThreadPool&);
extern template std::unique_ptr<Passes<double>> make_passes(const Setup&, parallel::Mesh&, model::ParamStore<double>&,
                                                            optim::Sharded<double>&, tensor::ThreadPool&);

}  // namespace mm::loop
