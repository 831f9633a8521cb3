// SPDX-License-Identifier: Apache-2.0
// Times whole training steps of one process on samples that are decoded beforehand, and says where the time goes.
//
//   train-step MODEL SHARDS [--threads N] [--batch N] [--micro-batch N] [--steps N]
//
// Prints one JSON object: the median step, the least processor time of a step, the floating-point operations carried out, the
// time and work of each operation of the fastest step, the allocations of the later steps' model and optimizer, the peak
// resident size, and the rate at which this processor's cores multiply and add in registers.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "trainer/comm/comm.h"
#include "trainer/data/stream.h"
#include "trainer/interop/load_params.h"
#include "trainer/model/stage.h"
#include "trainer/model/vlm.h"
#include "trainer/ops/fma_peak.h"
#include "trainer/optim/schedule.h"
#include "trainer/optim/sharded.h"
#include "trainer/tensor/profile.h"

namespace {

std::atomic<int64_t> allocations{0};

}  // namespace

void* operator new(size_t n) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(n ? n : 1)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}

namespace mm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double cpu_seconds(clockid_t of) {
  timespec t{};
  ::clock_gettime(of, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double peak_of(tensor::ThreadPool& pool) {
  std::vector<double> peaks(static_cast<size_t>(pool.threads()));
  std::atomic<int> arrived{0};
  pool.parallel_for(pool.threads(), [&](int64_t i) {
    ++arrived;
    while (arrived < pool.threads()) std::this_thread::yield();  // all cores busy: their clocks are then those of real work
    peaks[static_cast<size_t>(i)] = ops::fma_peak(sizeof(float)) / 1e9;
  });
  return std::accumulate(peaks.begin(), peaks.end(), 0.0);
}

struct Options {
  std::string model, shards;
  int threads = 2, steps = 8;
  int64_t batch = 16, micro_batch = 16;
};

void run(const Options& o) {
  const model::VlmConfig config = model::load_config(o.model);
  auto specs = model::param_specs(config);
  std::ranges::sort(specs, {}, &model::ParamSpec::name);
  tensor::ThreadPool pool(o.threads);
  model::ParamStore<float> params(specs);
  const auto alone = comm::self_comm();
  optim::Sharded<float> sharded(params, [&](model::Holders) -> comm::Comm& { return *alone; }, 0, {});
  model::Stage<float> stage(config, model::chunks_of(config.text.layers, 0, 1, 1), params, pool);
  interop::load_params(o.model, specs, params);
  sharded.take_values();

  std::vector<std::vector<data::Sample>> batches;
  {
    data::StreamOptions stream_options;
    stream_options.shards = {o.shards};
    stream_options.shuffle = false;
    stream_options.global_batch = o.batch;
    stream_options.rule = config.sequence_rule(0);
    data::Stream stream(stream_options);
    for (int64_t b = 0; b < std::max<int64_t>(1, stream.samples() / o.batch); ++b) batches.push_back(stream.next(b));
  }

  std::vector<double> times, cpu_times;
  tensor::Profile fastest;
  int64_t allocated = 0, rows = 0;
  double loss_of_last = 0;
  model::MicroBatch batch;
  for (int step = 0; step < o.steps; ++step) {
    const std::vector<data::Sample>& samples = batches[static_cast<size_t>(step) % batches.size()];
    tensor::Profile profile;
    profile.entries.reserve(64);
    tensor::set_profile(&profile);
    const int64_t before = allocations;
    const auto begin = Clock::now();
    const double cpu_begin = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
    double labels = 0, loss = 0;
    for (const data::Sample& sample : samples)
      labels += static_cast<double>(std::ranges::count_if(sample.labels, [](int32_t l) { return l != data::no_label; }));
    sharded.begin_step();
    rows = 0;
    for (size_t at = 0; at < samples.size(); at += static_cast<size_t>(o.micro_batch)) {
      const auto part = std::span(samples).subspan(at, std::min(samples.size() - at, static_cast<size_t>(o.micro_batch)));
      {
        const tensor::Timed timed("packing of the batch");
        model::pack(config, part, batch);
      }
      sharded.set_last_micro_batch(at + part.size() == samples.size());
      rows += batch.rows();
      loss += stage.forward(0, 0, batch, nullptr, nullptr);
      stage.backward(0, 0, batch, 1 / labels, nullptr, nullptr);
    }
    sharded.finish_gradients();
    const double norm = std::sqrt(sharded.sum_of_squares(pool));
    sharded.update(step + 1, 1e-3, optim::clip_scale(norm, 1.0), pool);
    const double seconds = seconds_since(begin);
    tensor::set_profile(nullptr);
    if (step >= 2) {
      allocated = std::max(allocated, allocations - before);
      if (times.empty() || seconds < *std::ranges::min_element(times)) fastest = profile;
      times.push_back(seconds);
      cpu_times.push_back(cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_begin);
    }
    loss_of_last = loss / labels;
  }
  std::ranges::sort(times);
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);

  double flops = 0;
  nlohmann::json operations = nlohmann::json::array();
  std::ranges::sort(fastest.entries, std::greater{}, &tensor::Profile::Entry::seconds);
  for (const auto& entry : fastest.entries) {
    flops += entry.flops;
    operations.push_back({{"name", entry.name}, {"calls", entry.calls}, {"seconds", entry.seconds}, {"flops", entry.flops}});
  }
  const nlohmann::json result = {{"median_step_s", times[times.size() / 2]},
                                 {"fastest_step_s", times.front()},
                                 {"least_cpu_s", *std::ranges::min_element(cpu_times)},
                                 {"images_per_s", static_cast<double>(o.batch) / times[times.size() / 2]},
                                 {"rows", rows},
                                 {"flops", flops},
                                 {"operations", operations},
                                 {"allocations", allocated},
                                 {"peak_rss_mb", static_cast<double>(usage.ru_maxrss) / 1024},
                                 {"loss", loss_of_last},
                                 {"threads", o.threads},
                                 {"fma_peak_gflops", peak_of(pool)}};
  std::puts(result.dump().c_str());
}

}  // namespace
}  // namespace mm

int main(int argc, char** argv) {
  CLI::App app("Times training steps of one process");
  mm::Options o;
  app.add_option("model", o.model, "a Hugging Face folder")->required();
  app.add_option("shards", o.shards, "glob pattern")->required();
  app.add_option("--threads", o.threads);
  app.add_option("--batch", o.batch);
  app.add_option("--micro-batch", o.micro_batch);
  app.add_option("--steps", o.steps, "the first two are not counted")->check(CLI::Range(3, 100000));
  CLI11_PARSE(app, argc, argv);
  try {
    mm::run(o);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "train-step: %s\n", e.what());
    return 1;
  }
}
