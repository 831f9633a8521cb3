// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/passes.h"

#include "trainer/loop/pipeline.h"
#include "trainer/loop/placement.h"
#include "trainer/model/dual_tower.h"
#include "trainer/model/stage.h"

namespace mm::loop {
namespace {

template <class T>
class VlmPasses : public Passes<T> {
 public:
  VlmPasses(const Setup& setup, parallel::Mesh& mesh, model::ParamStore<T>& params, optim::Sharded<T>& sharded,
            tensor::ThreadPool& pool)
      : stage_(setup.config, chunks_of(setup), params, pool,
               model::StageGroups{.tp = mesh.tp.get(), .cp = mesh.cp.get(), .pictures = mesh.encoder_share.get()},
               model::StageOptions{setup.job.parallel.recompute == "full",
                                   {setup.job.optim.label_smoothing, setup.job.optim.z_loss}}),
        pipeline_(mesh, stage_, sharded, schedule_kind(setup.job), mm::pipeline(setup.job).chunks) {}
  double run(std::span<const model::MicroBatch> batches, double scale) override { return pipeline_.run(batches, scale); }

 private:
  model::Stage<T> stage_;
  Pipeline<T> pipeline_;
};

// The loss spans all pairs of the step: every micro-batch goes forward before the first goes back.
template <class T>
class PairPasses : public Passes<T> {
 public:
  PairPasses(const Setup& setup, parallel::Mesh& mesh, model::ParamStore<T>& params, optim::Sharded<T>& sharded,
             tensor::ThreadPool& pool)
      : sharded_(sharded),
        towers_(*setup.pairs, params, pool, model::DualTowerGroups{mesh.tp.get(), mesh.data.get()},
                setup.job.parallel.recompute == "full") {}

  double run(std::span<const model::MicroBatch> batches, double scale) override {
    const int n = static_cast<int>(batches.size());
    for (int i = 0; i < n; ++i) towers_.forward(i, batches[static_cast<size_t>(i)]);
    const double loss = towers_.loss(n, scale);
    for (int i = 0; i < n; ++i) {
      sharded_.set_last_micro_batch(i + 1 == n);
      towers_.backward(i, batches[static_cast<size_t>(i)]);
    }
    return loss;
  }

 private:
  optim::Sharded<T>& sharded_;
  model::DualTower<T> towers_;
};

}  // namespace

template <class T>
std::unique_ptr<Passes<T>> make_passes(const Setup& setup, parallel::Mesh& mesh, model::ParamStore<T>& params,
                                       optim::Sharded<T>& sharded, tensor::ThreadPool& pool) {
  if (setup.pairs) return std::make_unique<PairPasses<T>>(setup, mesh, params, sharded, pool);
  return std::make_unique<VlmPasses<T>>(setup, mesh, params, sharded, pool);
}

template std::unique_ptr<Passes<float>> make_passes(const Setup&, parallel::Mesh&, model::ParamStore<float>&,
                                                    optim::Sharded<float>&, tensor::ThreadPool&);
template std::unique_ptr<Passes<double>> make_passes(const Setup&, parallel::Mesh&, model::ParamStore<double>&,
                                                     optim::Sharded<double>&, tensor::ThreadPool&);

}  // namespace mm::loop
