// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/trainer.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "common/log.h"
#include "common/site.h"
#include "trainer/interop/load_params.h"
#include "trainer/interop/safetensors.h"
#include "trainer/loop/agree.h"
#include "trainer/loop/gather.h"
#include "trainer/loop/near_tiers.h"
#include "trainer/loop/placement.h"
#include "trainer/loop/resume.h"
#include "trainer/loop/stop.h"
#include "trainer/loop/tensors.h"
#include "trainer/ops/fma_peak.h"
#include "trainer/optim/schedule.h"

namespace mm::loop {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// How late a peer may be. Loading and saving wait for disks, the first step for page faults; later ones are alike. The agent,
// which sees more, looks for hung ranks after recovery.hang_timeout; peers wait twice as long, so that it comes first.
constexpr auto load_deadline = 10min, save_deadline = 10min;
// Bytes a second that a rank is taken to save, before it has saved.
constexpr double slow_disk = 50e6;

std::chrono::milliseconds step_deadline(const Job& job, double last_step_seconds) {
  const double hang = hang_timeout_seconds(job);
  const std::chrono::milliseconds least =
      hang > 0 ? std::chrono::milliseconds(static_cast<int64_t>(2000 * hang)) : comm::default_deadline;
  return least + std::chrono::milliseconds(static_cast<int64_t>(10'000 * last_step_seconds));
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

optim::AdamWOptions adamw_options(const Job& job) {
  return {job.optim.betas[0], job.optim.betas[1], job.optim.eps, job.optim.weight_decay};
}

}  // namespace

template <class T>
Trainer<T>::Part::Part(const Setup& setup, parallel::Mesh& mesh)
    : pool(compute_threads(setup.job.parallel.threads)),
      params(setup.specs, placement(setup)),
      sharded(
          params, [&mesh](model::Holders holders) -> comm::Comm& { return group_of(mesh, holders); }, setup.job.parallel.zero,
          adamw_options(setup.job)),
      passes(make_passes(setup, mesh, params, sharded, pool)) {}

template <class T>
Trainer<T>::Trainer(const Setup& setup, const TrainOptions& options, comm::Comm& world)
    : setup_(setup),
      options_(options),
      world_(world),
      mesh_(parallel::make_mesh(world, setup.layout, setup.encoder)),
      batches_(setup, mesh_),
      folder_(setup.job.run.dir, false) {
  agree(world, [&] { part_ = std::make_unique<Part>(setup, mesh_); });
  const auto share = [&](T* data, int64_t elements) { return world.share(data, static_cast<size_t>(elements) * sizeof(T)); };
  part_->shared_values = share(part_->params.values(), part_->params.value_elements());
  part_->shared_gradients = share(part_->params.gradients(), part_->params.gradient_elements());
}

template <class T>
Trainer<T>::~Trainer() = default;

template <class T>
void Trainer<T>::load_state() {
  world_.set_phase("load", load_deadline);
  agent_.say({{"PHASE", "load"}});
  CommGroup group(world_);
  folder_.compress(compression_of(setup_.job));
  if (!setup_.job.checkpoint.tiers.empty())
    for (const std::string& problem : use_near_tiers(folder_, group, setup_.job)) warn(problem);
  const auto views = [&](int64_t, const checkpoint::Facts& facts) {
    check_facts(facts, setup_, batches_.fingerprint(), options_.allow_data_change);
    std::vector<checkpoint::View> all;
    for (const auto& o : part_->sharded.owned()) {
      add_views(part_->params, *o.run, o.part, "param", o.value, all);
      if (o.m) add_views(part_->params, *o.run, o.part, "m", o.m, all);
      if (o.v) add_views(part_->params, *o.run, o.part, "v", o.v, all);
    }
    return all;
  };
  std::optional<checkpoint::RunFolder::Loaded> loaded;
  try {
    loaded = folder_.load_newest(group, views);
  } catch (const Error& e) {
    if (e.status == exit_status::peer_lost) throw;
    throw AgreedError(e.status, e.what(), world_.rank() == 0);
  }
  if (loaded) {
    part_->sharded.share_loaded();
    for (const std::string& skipped : loaded->skipped) warn("checkpoint not used: " + skipped);
    first_step_ = saved_step_ = loaded->step;
    if (world_.rank() == 0) {
      log::info("{}: continues at step {} of {}", setup_.job.run.dir, first_step_, setup_.job.run.steps);
      for (const std::string& difference : differences(loaded->facts, setup_)) log::info("since its checkpoint, {}", difference);
    }
    return;
  }
  agree(world_, [&] {
    if (setup_.job.model.init == "random")
      model::initialise(part_->params, static_cast<uint64_t>(setup_.job.run.seed));
    else
      interop::load_params(setup_.job.model.path, setup_.specs, part_->params);
    part_->sharded.take_values();
  });
}

template <class T>
int Trainer<T>::run() {
  load_state();
  const int64_t steps = setup_.job.run.steps;
  if (first_step_ >= steps) {
    if (world_.rank() == 0) log::info("{}: nothing is left to do: {} steps are done", setup_.job.run.dir, first_step_);
    return exit_status::ok;
  }
  agree(world_, [&] {
    if (world_.rank() != 0) return;
    metrics_.emplace(setup_.job.run.dir + "/metrics.jsonl", first_step_);
    if (setup_.job.log.tensorboard) events_.emplace(setup_.job.run.dir + "/tensorboard", first_step_);
    write_file_durably(setup_.job.run.dir + "/config.json", setup_.config_text);
    if (!setup_.preprocessor_text.empty())
      write_file_durably(setup_.job.run.dir + "/preprocessor_config.json", setup_.preprocessor_text);
  });
  {
    CommGroup group(world_);
    saver_.emplace(folder_, group,
                   checkpoint::Saver::Options{.deadline = save_deadline, .keep = checkpoint::Keep{setup_.job.checkpoint.keep}});
  }
  begun_step_ = saved_step_;
  const std::vector<std::string> nodes = world_.all_gather(this_node());
  schedule_.emplace(setup_.job, static_cast<double>(batches_.samples()) / static_cast<double>(setup_.job.data.global_batch),
                    static_cast<int>(std::set(nodes.begin(), nodes.end()).size()), Clock::now());
  peak_ = world_.all_reduce({ops::fma_peak(sizeof(T)) * part_->pool.threads()})[0];
  time_left_.emplace(3.0 * static_cast<double>(part_->params.value_elements() * static_cast<int64_t>(sizeof(T))) / slow_disk);
  console_.emplace(world_.rank() == 0, first_step_, steps, setup_.job.log.every);
  agent_.say({{"PHASE", "train"}, {"STEP", std::to_string(first_step_)}, {"CHECKPOINT", std::to_string(saved_step_)}});
  world_.set_phase(fmt::format("step {}", first_step_), step_deadline_);
  for (int64_t step = first_step_; step < steps; ++step) {
    const Clock::time_point begin = Clock::now();
    const double waited = world_.wait_seconds();
    const uint64_t sent = world_.bytes_sent();
    const std::string failure = failure_of([&] { batches_.read(step); });
    const double data_wait = seconds_since(begin);
    const Counts counts = count(failure);
    if (counts.failed > 0) throw_first(world_, failure);
    if (counts.stop + counts.time_up > 0) {
      last_save(step);
      if (world_.rank() == 0)
        log::info("{}: {}: {} steps are done, {} are saved", setup_.job.run.dir,
                  counts.stop > 0 ? "asked to stop" : "the job's time is over soon", step, saved_step_);
      return exit_status::requeue;
    }
    learn(saver_->ended());
    if (counts.save > 0) begin_save(step);
    StepMetrics metrics = train_step(step, counts);
    metrics.step_s = seconds_since(begin);
    metrics.images_s = counts.images / std::max(metrics.step_s, 1e-9);
    metrics.tokens_s = counts.tokens / std::max(metrics.step_s, 1e-9);
    metrics.mfu = counts.flops / std::max(metrics.step_s, 1e-9) / peak_;
    metrics.data_wait_s = data_wait;
    metrics.comm_wait_s = world_.wait_seconds() - waited;
    metrics.comm_bytes = static_cast<int64_t>(world_.bytes_sent() - sent);
    metrics.loader = batches_.loader();
    report(metrics);
    time_left_->stepped(metrics.step_s);
    step_deadline_ = step_deadline(setup_.job, metrics.step_s);
    world_.set_phase(fmt::format("step {}", step + 1), step_deadline_);
    if (schedule_->due_after(step + 1) && step + 1 < steps) begin_save(step + 1);
  }
  last_save(steps);
  agent_.say({{"PHASE", "end"}});
  if (metrics_ && metrics_behind_)
    throw Error(exit_status::internal, setup_.job.run.dir + "/metrics.jsonl: the last lines could not be written");
  return saved_step_ == steps ? exit_status::ok : exit_status::internal;
}

template <class T>
typename Trainer<T>::Counts Trainer<T>::count(const std::string& failure) {
  const Batches::Share share = batches_.share();
  // By the clock of rank 0, or at the word of the agent of any node; the sum tells the others.
  const bool is_save_asked = std::exchange(agent_asks_to_save_, false);
  const bool is_save_due = is_save_asked || (world_.rank() == 0 && schedule_ && schedule_->due_at(Clock::now()));
  const bool time_is_up = time_left_ && time_left_->is_up(seconds_since_1970());
  const std::vector<double> sums =
      world_.all_reduce({static_cast<double>(share.tokens), static_cast<double>(share.images), stop_requested() ? 1.0 : 0.0,
                         time_is_up ? 1.0 : 0.0, is_save_due ? 1.0 : 0.0, failure.empty() ? 0.0 : 1.0, static_cast<double>(share.rejected), share.flops});
  return {sums[0], sums[1], sums[2], sums[3], sums[4], sums[5], sums[6], sums[7]};
}

template <class T>
bool Trainer<T>::Sums::finite() const {
  return std::isfinite(loss) && std::isfinite(squares);
}

// The gradients of the step, scaled for the global batch and summed over their holders.
template <class T>
typename Trainer<T>::Sums Trainer<T>::accumulate(const Counts& counts) {
  batches_.hand_out();
  part_->sharded.begin_step();
  const double loss = counts.tokens > 0 ? part_->passes->run(batches_.micro_batches(), 1 / counts.tokens) : 0;
  part_->sharded.finish_gradients();
  const std::vector<double> sums = world_.all_reduce({loss, part_->sharded.sum_of_squares(part_->pool)});
  return {sums[0], sums[1]};
}

// Nothing has been updated yet, so the step can be done again to find out where its numbers go wrong first: on which rank, and
// in which tensor of the order in which gradients become ready.
template <class T>
std::string Trainer<T>::bad_numbers(int64_t step, const Counts& counts) {
  part_->sharded.set_inspecting(true);
  part_->sharded.begin_step();
  const double loss = part_->passes->run(batches_.micro_batches(), 1 / counts.tokens);
  const std::optional<std::string> tensor = part_->sharded.first_bad();
  part_->sharded.set_inspecting(false);
  std::string mine;
  if (!std::isfinite(loss) || tensor)
    mine = fmt::format("step {}: the {} of rank {} on {} is not finite{}", step, std::isfinite(loss) ? "gradient" : "loss",
                       world_.rank(), this_node(), tensor ? "; first in " + *tensor : "");
  for (const std::string& theirs : world_.all_gather(mine))
    if (!theirs.empty()) return theirs;
  return fmt::format("step {}: the sum over the ranks is not finite", step);
}

template <class T>
StepMetrics Trainer<T>::train_step(int64_t step, const Counts& counts) {
  const Sums sums = accumulate(counts);
  const Job& job = setup_.job;
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = counts.tokens > 0 ? sums.loss / counts.tokens : 0;
  metrics.grad_norm = std::sqrt(sums.squares);
  metrics.lr = optim::learning_rate({job.optim.lr, job.optim.min_lr_ratio, job.optim.warmup, job.run.steps}, step);
  metrics.tokens = static_cast<int64_t>(counts.tokens);
  metrics.rejected = static_cast<int64_t>(counts.rejected);
  if (sums.finite()) {
    part_->sharded.update(step + 1, metrics.lr, optim::clip_scale(metrics.grad_norm, job.optim.clip), part_->pool);
  } else {
    const std::string message = bad_numbers(step, counts);
    if (!job.optim.skip_nonfinite) {
      save_beside(step);
      throw AgreedError(exit_status::numeric, message, world_.rank() == 0);
    }
    ++skipped_steps_;
    warn(message + "; the step's update is left out");
  }
  metrics.save_s = std::exchange(save_seconds_, 0);
  metrics.failed_saves = failed_saves_;
  metrics.skipped = skipped_steps_;
  return metrics;
}

template <class T>
void Trainer<T>::report(const StepMetrics& metrics) {
  agent_.say({{"PHASE", "train"},
              {"STEP", std::to_string(metrics.step + 1)},
              {"LOSS", fmt::format("{:.6g}", metrics.loss)},
              {"BUSY", fmt::format("{:.6f}", std::max(0.0, metrics.step_s - metrics.comm_wait_s))},
              {"GROUP", mesh_.encodes ? "encoder" : fmt::format("stage{}{}", mesh_.at.pp, mesh_.reads() ? "-reads" : "")}});
  obey_agent();
  if (!metrics_) return;
  const std::string line = format_metrics(metrics);
  const std::string error = metrics_->append(line);
  if (!error.empty() && !metrics_behind_) warn(error + " (kept in memory and tried again at each step)");
  metrics_behind_ = !error.empty();
  if (events_)
    if (const std::string why = events_->append(metrics); !why.empty()) {
      warn(why + " (no more events are written)");
      events_.reset();
    }
  if (options_.json) {
    std::fputs(line.c_str(), stdout);
    std::fflush(stdout);
  }
  console_->step_done(metrics);
}

template <class T>
void Trainer<T>::obey_agent() {
  while (const auto advice = agent_.advice()) {
    const std::string what = get(*advice, "ADVICE");
    if (what == "save") agent_asks_to_save_ = true;
    if (what == "end" && time_left_) time_left_->ends_at(std::strtod(get(*advice, "END").c_str(), nullptr));
    if (what == "shrink") batches_.shrink(static_cast<int>(get_int(*advice, "LEVEL", 1)));
    if (what == "save" || what == "shrink") log::info("the agent asks rank {} to {}: {}", world_.rank(), what, get(*advice, "WHY"));
  }
}

template <class T>
void Trainer<T>::warn(const std::string& message) {
  if (world_.rank() != 0) return;
  if (console_) console_->end_line();
  log::warn("{}", message);
}

template <class T>
std::vector<checkpoint::ConstView> Trainer<T>::views() {
  std::vector<checkpoint::ConstView> all;
  for (const auto& o : part_->sharded.owned()) {
    add_views(part_->params, *o.run, o.part, "param", o.value, all);
    if (o.m) add_views(part_->params, *o.run, o.part, "m", o.m, all);
    if (o.v) add_views(part_->params, *o.run, o.part, "v", o.v, all);
  }
  return all;
}

// Where numbers went wrong: the state before the step, in a folder of its own, which no restart loads.
template <class T>
void Trainer<T>::save_beside(int64_t done) {
  const std::string run = setup_.job.run.dir + "/nonfinite";
  world_.set_phase(fmt::format("save of step {}", done), save_deadline);
  agree(world_, [&] {
    if (world_.rank() == 0) checkpoint::RunFolder(run, true);
  });
  CommGroup group(world_);
  const checkpoint::SaveResult result =
      checkpoint::RunFolder(run, false).save(group, done, views(), facts_of(setup_, batches_.fingerprint(), done));
  warn(result.committed ? fmt::format("{}: the state before step {} is kept there", run, done)
                        : fmt::format("{}: the state before step {} could not be kept: {}", run, done, result.error));
}

// Begins a save beside the training; where both of the saver's buffers are busy it is left out.
template <class T>
void Trainer<T>::begin_save(int64_t done) {
  if (done == begun_step_) return;
  const Clock::time_point begin = Clock::now();
  agent_.say({{"PHASE", "save"}});
  world_.set_phase(fmt::format("save of step {}", done), save_deadline);
  if (metrics_)
    if (const std::string error = metrics_->sync(); !error.empty()) warn(error);
  CommGroup group(world_);
  if (saver_->begin(group, done, views(), facts_of(setup_, batches_.fingerprint(), done)))
    begun_step_ = done;
  else
    warn(fmt::format("checkpoint of step {} is left out: two others are still being written", done));
  save_seconds_ = seconds_since(begin);
  schedule_->begun(Clock::now(), save_seconds_);  // a save that fails is tried again when the next is due
  agent_.say({{"PHASE", "train"}});
  world_.set_phase(fmt::format("step {}", done), step_deadline_);
}

template <class T>
void Trainer<T>::learn(const std::vector<checkpoint::SaveResult>& results) {
  for (const checkpoint::SaveResult& result : results) {
    for (const std::string& problem : result.problems) warn(problem);
    if (result.committed) {
      saved_step_ = result.step;
      if (time_left_) time_left_->saved(result.seconds);
      const std::string interval = schedule_->committed(result.seconds);
      if (!interval.empty() && world_.rank() == 0) {
        console_->end_line();
        log::info("{}", interval);
      }
      agent_.say({{"CHECKPOINT", std::to_string(result.step)}});
    } else {
      ++failed_saves_;
      warn(fmt::format("checkpoint of step {} failed, the one of step {} stays: {}", result.step, saved_step_, result.error));
    }
  }
}

// The last save, which nothing is spared for: returns when the step is saved, or cannot be.
template <class T>
void Trainer<T>::last_save(int64_t done) {
  agent_.say({{"PHASE", "save"}});
  world_.set_phase(fmt::format("save of step {}", done), save_deadline);
  learn(saver_->wait());
  saver_.reset();
  if (saved_step_ == done) return;
  if (metrics_)
    if (const std::string error = metrics_->sync(); !error.empty()) warn(error);
  CommGroup group(world_);
  checkpoint::SaveResult result = folder_.save(group, done, views(), facts_of(setup_, batches_.fingerprint(), done));
  result.step = done;
  learn({result});
  if (!result.committed) return;
  if (const std::string error = folder_.retain(group, setup_.job.checkpoint.keep); !error.empty()) warn(error);
}

template <class T>
void Trainer<T>::dump_gradients(const std::string& path) {
  load_state();
  world_.set_phase(fmt::format("step {}", first_step_), step_deadline_);
  const std::string failure = failure_of([&] { batches_.read(first_step_); });
  const Counts counts = count(failure);
  if (counts.failed > 0) throw_first(world_, failure);
  accumulate(counts);
  std::vector<checkpoint::ConstView> mine;
  for (const auto& o : part_->sharded.owned())
    if (o.gradient) add_views(part_->params, *o.run, o.part, "gradient", o.gradient, mine);
  const std::vector<GatheredTensor<T>> all = gather_tensors<T>(world_, mine);
  agree(world_, [&] {
    if (world_.rank() != 0) return;
    std::vector<interop::TensorView> tensors;
    for (const GatheredTensor<T>& t : all) tensors.push_back({t.name, t.shape, t.values.data()});
    interop::write_safetensors(path, sizeof(T) == 8 ? "F64" : "F32", std::move(tensors));
  });
}

template class Trainer<float>;
template class Trainer<double>;

}  // namespace mm::loop
