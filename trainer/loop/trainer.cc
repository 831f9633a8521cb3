// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/trainer.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "common/log.h"
#include "trainer/interop/load_params.h"
#include "trainer/interop/safetensors.h"
#include "trainer/loop/agree.h"
#include "trainer/loop/labels.h"
#include "trainer/loop/resume.h"
#include "trainer/loop/stop.h"
#include "trainer/optim/schedule.h"

namespace mm::loop {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// How late a peer may be. Loading and saving wait for disks, the first step for page faults; later ones are alike. The agent,
// which sees more, looks for hung ranks after recovery.hang_timeout; peers wait twice as long, so that it comes first.
constexpr auto load_deadline = 10min, save_deadline = 10min;

std::chrono::milliseconds step_deadline(const Job& job, double last_step_seconds) {
  const double hang = hang_timeout_seconds(job);
  const std::chrono::milliseconds least =
      hang > 0 ? std::chrono::milliseconds(static_cast<int64_t>(2000 * hang)) : comm::default_deadline;
  return least + std::chrono::milliseconds(static_cast<int64_t>(10'000 * last_step_seconds));
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

comm::Range owned_range(const Setup& setup, comm::Range part, int64_t size) {
  return setup.job.parallel.zero >= 1 ? part : comm::Range{0, size};
}

optim::AdamWOptions adamw_options(const Job& job) {
  return {job.optim.betas[0], job.optim.betas[1], job.optim.eps, job.optim.weight_decay};
}

}  // namespace

template <class T>
Trainer<T>::Trainer(const Setup& setup, const TrainOptions& options, comm::Comm& comm)
    : setup_(setup),
      options_(options),
      comm_(comm),
      pool_(compute_threads(setup.job.parallel.threads)),
      stream_(stream_options(setup)),
      params_(setup.specs),
      model_(setup.config, params_, pool_),
      part_(comm::part_of(params_.size(), comm.rank(), comm.size())),
      optimizer_(setup.specs, owned_range(setup, part_, params_.size()), adamw_options(setup.job)),
      tiles_(optim::trained_tiles(setup.specs, part_)),
      folder_(setup.job.run.dir, false) {}

template <class T>
Trainer<T>::~Trainer() = default;

template <class T>
void Trainer<T>::load_state() {
  comm_.set_phase("load", load_deadline);
  agent_.say({{"PHASE", "load"}});
  CommGroup group(comm_);
  const std::string stream = stream_.fingerprint();
  const auto views = [&](int64_t, const checkpoint::Facts& facts) {
    check_facts(facts, setup_, stream, options_.allow_data_change);
    using checkpoint::View;
    std::vector<View> all = views_of_range<View>(setup_.specs, {0, params_.size()}, "param", params_.values());
    const comm::Range owned = optimizer_.owned();
    for (const auto& [role, data] : {std::pair("m", optimizer_.m()), std::pair("v", optimizer_.v())})
      for (View& v : views_of_range<View>(setup_.specs, owned, role, data)) all.push_back(std::move(v));
    return all;
  };
  std::optional<checkpoint::RunFolder::Loaded> loaded;
  try {
    loaded = folder_.load_newest(group, views);
  } catch (const Error& e) {
    if (e.status == exit_status::peer_lost) throw;
    throw AgreedError(e.status, e.what(), comm_.rank() == 0);
  }
  if (loaded) {
    for (const std::string& skipped : loaded->skipped) warn("checkpoint not used: " + skipped);
    first_step_ = saved_step_ = loaded->step;
    if (comm_.rank() == 0) log::info("{}: continues at step {} of {}", setup_.job.run.dir, first_step_, setup_.job.run.steps);
    return;
  }
  agree(comm_, [&] {
    if (setup_.job.model.init == "random")
      model::initialise(params_, static_cast<uint64_t>(setup_.job.run.seed));
    else
      interop::load_params(setup_.job.model.path, params_);
  });
}

template <class T>
int Trainer<T>::run() {
  load_state();
  const int64_t steps = setup_.job.run.steps;
  if (first_step_ >= steps) {
    if (comm_.rank() == 0) log::info("{}: nothing is left to do: {} steps are done", setup_.job.run.dir, first_step_);
    return exit_status::ok;
  }
  agree(comm_, [&] {
    if (comm_.rank() != 0) return;
    metrics_.emplace(setup_.job.run.dir + "/metrics.jsonl", first_step_);
    write_file_durably(setup_.job.run.dir + "/config.json", setup_.config_text);
    if (!setup_.preprocessor_text.empty())
      write_file_durably(setup_.job.run.dir + "/preprocessor_config.json", setup_.preprocessor_text);
  });
  console_.emplace(comm_.rank() == 0, first_step_, steps, setup_.job.log.every);
  agent_.say({{"PHASE", "train"}, {"STEP", std::to_string(first_step_)}, {"CHECKPOINT", std::to_string(saved_step_)}});
  comm_.set_phase(fmt::format("step {}", first_step_), step_deadline_);
  for (int64_t step = first_step_; step < steps; ++step) {
    const Clock::time_point begin = Clock::now();
    const double waited = comm_.wait_seconds();
    std::string failure;
    const std::vector<data::Sample> share = next_share(step, failure);
    const double data_wait = seconds_since(begin);
    const Counts counts = count(share, failure);
    if (counts.failed > 0) throw_first(comm_, failure);
    if (counts.stop > 0) {
      save(step);
      if (comm_.rank() == 0)
        log::info("{}: asked to stop: {} steps are done, {} are saved", setup_.job.run.dir, step, saved_step_);
      return exit_status::requeue;
    }
    if (counts.save > 0) save(step);
    StepMetrics metrics = train_step(step, share, counts);
    metrics.step_s = seconds_since(begin);
    metrics.images_s = counts.images / std::max(metrics.step_s, 1e-9);
    metrics.data_wait_s = data_wait;
    metrics.comm_wait_s = comm_.wait_seconds() - waited;
    report(metrics);
    step_deadline_ = step_deadline(setup_.job, metrics.step_s);
    comm_.set_phase(fmt::format("step {}", step + 1), step_deadline_);
    if (save_due(step + 1) && step + 1 < steps) save(step + 1);
  }
  save(steps);
  agent_.say({{"PHASE", "end"}});
  if (metrics_ && metrics_behind_)
    throw Error(exit_status::internal, setup_.job.run.dir + "/metrics.jsonl: the last lines could not be written");
  return saved_step_ == steps ? exit_status::ok : exit_status::internal;
}

template <class T>
std::vector<data::Sample> Trainer<T>::next_share(int64_t step, std::string& failure) {
  std::vector<data::Sample> share;
  failure = failure_of([&] { share = stream_.next(step); });
  return share;
}

template <class T>
typename Trainer<T>::Counts Trainer<T>::count(const std::vector<data::Sample>& share, const std::string& failure) {
  int64_t images = 0;
  for (const data::Sample& s : share) images += static_cast<int64_t>(s.images.size());
  const std::vector<double> sums = comm_.all_reduce(
      {static_cast<double>(trained_labels(share)), static_cast<double>(images), stop_requested() ? 1.0 : 0.0,
       save_due_by_clock() ? 1.0 : 0.0, failure.empty() ? 0.0 : 1.0, static_cast<double>(stream_.counters().rejected)});
  return {sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]};
}

// Gradients of the share, scaled for the global batch; returns its summed loss.
template <class T>
double Trainer<T>::accumulate(const std::vector<data::Sample>& share, double tokens) {
  params_.zero_gradients();
  if (tokens == 0) return 0;
  const auto n = static_cast<int64_t>(share.size());
  const int64_t most = setup_.job.parallel.micro_batch > 0 ? setup_.job.parallel.micro_batch : std::max<int64_t>(n, 1);
  const int pieces = static_cast<int>((n + most - 1) / most);
  double loss = 0;
  for (int k = 0; k < pieces; ++k) {
    const comm::Range piece = comm::part_of(n, k, pieces);
    loss += model_.forward(std::span(share).subspan(static_cast<size_t>(piece.begin), static_cast<size_t>(piece.size())));
    model_.backward(1 / tokens);
  }
  return loss;
}

template <class T>
void Trainer<T>::reduce_gradients() {
  comm_.reduce_scatter(params_.gradients(), params_.size());
}

// Nothing has been updated yet, so a rank can compute its own gradients again to find out whether it is the one.
template <class T>
void Trainer<T>::check_finite(int64_t step, const std::vector<data::Sample>& share, const Counts& counts, double loss,
                              double squares) {
  if (std::isfinite(loss) && std::isfinite(squares)) return;
  const char* what = nullptr;
  if (!std::isfinite(accumulate(share, counts.tokens)))
    what = "loss";
  else if (!std::isfinite(
               optim::sum_of_squares(params_.gradients(), optim::trained_tiles(setup_.specs, {0, params_.size()}), pool_)))
    what = "gradient";
  throw_first(comm_, what == nullptr ? ""
                                     : fmt::format("{} step {}: the {} of rank {} is not finite", exit_status::numeric, step,
                                                   what, comm_.rank()));
  throw AgreedError(exit_status::numeric, fmt::format("step {}: the sum over the ranks is not finite", step),
                    comm_.rank() == 0);
}

template <class T>
void Trainer<T>::update(int64_t step, double lr, double norm) {
  const double scale = optim::clip_scale(norm, setup_.job.optim.clip);
  const bool sharded = setup_.job.parallel.zero >= 1;
  if (!sharded) comm_.all_gather_parts(params_.gradients(), params_.size());
  optimizer_.step(step + 1, lr, scale, params_.values(), params_.gradients(), pool_);
  if (sharded) comm_.all_gather_parts(params_.values(), params_.size());
}

template <class T>
StepMetrics Trainer<T>::train_step(int64_t step, const std::vector<data::Sample>& share, const Counts& counts) {
  const double my_loss = accumulate(share, counts.tokens);
  reduce_gradients();
  const std::vector<double> sums = comm_.all_reduce({my_loss, optim::sum_of_squares(params_.gradients(), tiles_, pool_)});
  check_finite(step, share, counts, sums[0], sums[1]);
  const Job& job = setup_.job;
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = counts.tokens > 0 ? sums[0] / counts.tokens : 0;
  metrics.grad_norm = std::sqrt(sums[1]);
  metrics.lr = optim::learning_rate({job.optim.lr, job.optim.min_lr_ratio, job.optim.warmup, job.run.steps}, step);
  metrics.tokens = static_cast<int64_t>(counts.tokens);
  metrics.save_s = std::exchange(save_seconds_, 0);
  metrics.failed_saves = failed_saves_;
  metrics.rejected = static_cast<int64_t>(counts.rejected);
  update(step, metrics.lr, metrics.grad_norm);
  return metrics;
}

template <class T>
void Trainer<T>::report(const StepMetrics& metrics) {
  agent_.say({{"PHASE", "train"}, {"STEP", std::to_string(metrics.step + 1)}, {"LOSS", fmt::format("{:.6g}", metrics.loss)}});
  if (!metrics_) return;
  const std::string line = format_metrics(metrics);
  const std::string error = metrics_->append(line);
  if (!error.empty() && !metrics_behind_) warn(error + " (kept in memory and tried again at each step)");
  metrics_behind_ = !error.empty();
  if (options_.json) {
    std::fputs(line.c_str(), stdout);
    std::fflush(stdout);
  }
  console_->step_done(metrics.step + 1, metrics.loss, metrics.images_s);
}

template <class T>
void Trainer<T>::warn(const std::string& message) {
  if (comm_.rank() != 0) return;
  if (console_) console_->end_line();
  log::warn("{}", message);
}

template <class T>
bool Trainer<T>::save_due(int64_t done) const {
  const SaveEvery every = save_every(setup_.job);
  if (every.steps > 0) return done % every.steps == 0;
  if (every.epochs <= 0) return false;
  const double steps =
      every.epochs * static_cast<double>(stream_.samples()) / static_cast<double>(setup_.job.data.global_batch);
  return std::floor(static_cast<double>(done) / steps) > std::floor(static_cast<double>(done - 1) / steps);
}

// By the clock of rank 0; the all_reduce of the counts tells the others.
template <class T>
bool Trainer<T>::save_due_by_clock() const {
  const double minutes = save_every(setup_.job).minutes;
  return comm_.rank() == 0 && minutes > 0 && seconds_since(saved_at_) >= 60 * minutes;
}

template <class T>
void Trainer<T>::save(int64_t done) {
  if (done == saved_step_) return;
  const Clock::time_point begin = Clock::now();
  agent_.say({{"PHASE", "save"}});
  comm_.set_phase(fmt::format("save of step {}", done), save_deadline);
  if (metrics_)
    if (const std::string error = metrics_->sync(); !error.empty()) warn(error);
  using checkpoint::ConstView;
  std::vector<ConstView> views = views_of_range<ConstView>(setup_.specs, part_, "param", params_.values() + part_.begin);
  const int64_t first = part_.begin - optimizer_.owned().begin;
  for (const auto& [role, data] : {std::pair("m", optimizer_.m() + first), std::pair("v", optimizer_.v() + first)})
    for (ConstView& v : views_of_range<ConstView>(setup_.specs, part_, role, data)) views.push_back(std::move(v));
  CommGroup group(comm_);
  const checkpoint::SaveResult result = folder_.save(group, done, views, facts_of(setup_, stream_.fingerprint(), done));
  saved_at_ = Clock::now();  // a save that failed is tried again when the next is due
  if (result.committed) {
    saved_step_ = done;
    const std::string error = folder_.retain(group, setup_.job.checkpoint.keep);
    if (!error.empty()) warn(error);
    agent_.say({{"CHECKPOINT", std::to_string(done)}});
  } else {
    ++failed_saves_;
    warn(fmt::format("checkpoint of step {} failed, the one of step {} stays: {}", done, saved_step_, result.error));
  }
  save_seconds_ = seconds_since(begin);
  agent_.say({{"PHASE", "train"}});
  comm_.set_phase(fmt::format("step {}", done), step_deadline_);
}

template <class T>
void Trainer<T>::dump_gradients(const std::string& path) {
  load_state();
  std::string failure;
  const std::vector<data::Sample> share = next_share(first_step_, failure);
  const Counts counts = count(share, failure);
  if (counts.failed > 0) throw_first(comm_, failure);
  accumulate(share, counts.tokens);
  reduce_gradients();
  comm_.all_gather_parts(params_.gradients(), params_.size());
  agree(comm_, [&] {
    if (comm_.rank() != 0) return;
    std::vector<interop::TensorView> tensors;
    for (size_t i = 0; i < setup_.specs.size(); ++i)
      if (setup_.specs[i].trained()) tensors.push_back({setup_.specs[i].name, setup_.specs[i].shape, params_.gradient(i)});
    interop::write_safetensors(path, sizeof(T) == 8 ? "F64" : "F32", std::move(tensors));
  });
}

template class Trainer<float>;
template class Trainer<double>;

}  // namespace mm::loop
