// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/passes.h"

#include "trainer/loop/pipeline.h"
#include "trainer/loop/placement.h"
#include "trainer/model/dual_tower.h"
#include "trainer/model/encoder_stage.h"
#include "trainer/model/stage.h"

namespace mm::loop {
namespace {

template <class T>
class VlmPasses : public Passes<T> {
 public:
  VlmPasses(const Setup& setup, parallel::Mesh& mesh, model::ParamStore<T>& params, optim::Sharded<T>& sharded,
            tensor::ThreadPool& pool)
      : stage_(setup.config, chunks_of(setup), params, pool,
               model::StageGroups{.tp = mesh.tp.get(),
                                  .cp = mesh.cp.get(),
                                  .pictures = mesh.bridge() ? mesh.bridge() : mesh.encoder_share.get(),
                                  .makers = makers(setup)},
               model::StageOptions{setup.job.parallel.recompute == "full",
                                   {setup.job.optim.label_smoothing, setup.job.optim.z_loss}}),
        pipeline_(mesh, stage_, sharded, schedule_kind(setup.job), mm::pipeline(setup.job).chunks) {}
  double run(std::span<const model::MicroBatch> batches, double scale) override { return pipeline_.run(batches, scale); }

 private:
  model::Stage<T> stage_;
  Pipeline<T> pipeline_;
};

// A vision tower on ranks of its own: the features of every replica's micro-batches, in the order that its first stage follows.
template <class T>
class TowerPasses : public Passes<T> {
 public:
  TowerPasses(const Setup& setup, parallel::Mesh& mesh, model::ParamStore<T>& params, optim::Sharded<T>& sharded,
              tensor::ThreadPool& pool)
      : job_(setup.job),
        mesh_(mesh),
        sharded_(sharded),
        stage_(setup.config, makers(setup), params, pool, mesh.tp.get(), groups(mesh), setup.job.parallel.recompute == "full") {}

  double run(std::span<const model::MicroBatch> batches, double) override {
    const size_t replicas = mesh_.bridges.size();
    if (batches.size() != planned_) {
      planned_ = batches.size();
      const int micro_batches = static_cast<int>(planned_ / replicas);
      actions_ = parallel::encoder_actions(
          parallel::generate(schedule_kind(job_), mesh_.decoder.pp, mm::pipeline(job_).chunks, micro_batches).front());
    }
    size_t left = batches.size();
    for (const parallel::EncoderAction& action : actions_)
      for (size_t d = 0; d < replicas; ++d) {
        const model::MicroBatch& batch = batches[static_cast<size_t>(action.micro_batch) * replicas + d];
        if (action.what == parallel::EncoderAction::What::backward) sharded_.set_last_micro_batch(--left == 0);
        do_for(action, static_cast<int>(d), batch);
      }
    return 0;
  }

 private:
  static std::vector<comm::Comm*> groups(const parallel::Mesh& mesh) {
    std::vector<comm::Comm*> all;
    for (const auto& bridge : mesh.bridges) all.push_back(bridge.get());
    return all;
  }
  void do_for(const parallel::EncoderAction& action, int replica, const model::MicroBatch& batch) {
    switch (action.what) {
      case parallel::EncoderAction::What::make:
        return stage_.make(replica, action.slot, batch);
      case parallel::EncoderAction::What::send:
        return stage_.send(replica, action.slot, batch);
      case parallel::EncoderAction::What::take:
        return stage_.take(replica, action.slot, batch);
      case parallel::EncoderAction::What::backward:
        return stage_.backward(replica, action.slot, batch);
    }
  }

  const Job& job_;
  const parallel::Mesh& mesh_;
  optim::Sharded<T>& sharded_;
  model::EncoderStage<T> stage_;
  size_t planned_ = 0;  // micro-batches that the actions are for
  std::vector<parallel::EncoderAction> actions_;
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
  if (setup.encodes) return std::make_unique<TowerPasses<T>>(setup, mesh, params, sharded, pool);
  return std::make_unique<VlmPasses<T>>(setup, mesh, params, sharded, pool);
}

template std::unique_ptr<Passes<float>> make_passes(const Setup&, parallel::Mesh&, model::ParamStore<float>&,
                                                    optim::Sharded<float>&, tensor::ThreadPool&);
template std::unique_ptr<Passes<double>> make_passes(const Setup&, parallel::Mesh&, model::ParamStore<double>&,
                                                     optim::Sharded<double>&, tensor::ThreadPool&);

}  // namespace mm::loop
