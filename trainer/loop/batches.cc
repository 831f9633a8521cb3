// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/log.h"
#include "common/plan/flops.h"
#include "trainer/loop/agree.h"
#include "trainer/loop/labels.h"
#include "trainer/model/dual_tower.h"
#include "trainer/parallel/share_batch.h"

namespace mm::loop {

Batches::Batches(const Setup& setup, parallel::Mesh& mesh)
    : setup_(setup), mesh_(mesh), work_(plan::read_model(setup.job.model.path)) {
  const data::DealOptions deal = deal_options();
  pieces_ = deal.pieces;
  agree(*mesh.world, [&] {
    if (!mesh.reads()) return;
    data::StreamOptions options = stream_options(setup);
    options.bad.list = fmt::format("{}/quarantine/dp-{}.jsonl", setup.job.run.dir, setup.at.dp);
    options.deal = deal;
    stream_.emplace(std::move(options));
  });
  // Rank 0 of the world reads, and all readers see the same files.
  const std::vector<std::string> all = mesh.world->all_gather(
      stream_ ? std::to_string(stream_->samples()) + " " + stream_->fingerprint() : std::string());
  samples_ = std::stoll(all.front());
  fingerprint_ = all.front().substr(all.front().find(' ') + 1);
  agree(*mesh.world, [&] {
    if (mesh.world->rank() == 0 && deal.work) tell_imbalance();
  });
}

// The same on all ranks: by the job file alone, not by what a node has.
data::DealOptions Batches::deal_options() const {
  data::DealOptions deal;
  const int64_t share = setup_.job.data.global_batch / setup_.layout.dp;
  const int64_t most = setup_.job.parallel.micro_batch > 0 ? setup_.job.parallel.micro_batch : share;
  deal.pieces = static_cast<int>((share + most - 1) / most);
  if (!setup_.job.data.balance || setup_.pairs || (setup_.layout.dp == 1 && deal.pieces == 1)) return deal;
  deal.work = [work = work_](int64_t images, int64_t positions) {
    return plan::flops_of_batch(work, images, std::span(&positions, 1), std::max<int64_t>(1, positions - images * work.features));
  };
  const auto& cache = setup_.job.data.cache;
  deal.group = cache.memory > 0 || cache.disk > 0 ? 1 : 0;
  return deal;
}

void Batches::tell_imbalance() const {
  constexpr int64_t most = 32;  // steps, so that a start stays quick
  const int64_t steps = std::min(most, setup_.job.run.steps);
  const data::Shares::Imbalance of = stream_->imbalance(0, steps);
  log::info("balance: over {} steps the busiest of {} ranks that read has {:.3f} times the mean work in order, {:.3f} dealt out", steps,
            setup_.layout.dp, of.in_order, of.dealt);
}

void Batches::read(int64_t step) {
  batches_.resize(static_cast<size_t>(pieces_) * (mesh_.encodes ? mesh_.bridges.size() : 1));
  if (!stream_) return;
  const std::vector<data::Sample> samples = stream_->next(step);
  loader_ = stream_->counters();
  loader_.stages.read_wait -= std::exchange(read_wait_, loader_.stages.read_wait);
  loader_.stages.decode_wait -= std::exchange(decode_wait_, loader_.stages.decode_wait);
  share_ = {setup_.pairs ? static_cast<int64_t>(samples.size()) : trained_labels(samples), 0, loader_.rejected, 0};
  for (const data::Sample& s : samples) share_.images += static_cast<int64_t>(s.images.size());
  auto left = std::span(samples);
  size_t k = 0;
  for (const int64_t piece : stream_->pieces(step)) {
    const auto some = left.first(static_cast<size_t>(piece));
    left = left.subspan(some.size());
    model::MicroBatch& batch = batches_[k++];
    setup_.pairs ? model::pack_pairs(*setup_.pairs, some, batch) : model::pack(setup_.config, some, batch);
    std::vector<int64_t> lengths;
    for (size_t s = 1; s < batch.starts.size(); ++s) lengths.push_back(batch.starts[s] - batch.starts[s - 1]);
    share_.flops += plan::flops_of_batch(work_, batch.images, lengths, batch.label_count());
  }
}

void Batches::hand_out() {
  if (mesh_.encodes) {
    const size_t replicas = mesh_.bridges.size();
    for (size_t i = 0; i < batches_.size(); ++i) parallel::receive_pictures(mesh_, static_cast<int>(i % replicas), batches_[i]);
    return;
  }
  const parallel::Pixels pixels = setup_.pairs ? parallel::Pixels::whole : parallel::Pixels::dealt;
  for (model::MicroBatch& batch : batches_) parallel::share_batch(mesh_, batch, pixels);
}

}  // namespace mm::loop
