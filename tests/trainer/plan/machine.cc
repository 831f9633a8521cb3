// SPDX-License-Identifier: Apache-2.0
// For bench-plan: measures what the plan's time model wants to know of a rank (products, memory, messages), on as many ranks as MPI started,
// and prints the step time and memory that the model gives for a job on these ranks. Nothing is fitted to a training run.
//
//   [mpirun -n N] plan-machine JOB --labels L [--set KEY=VALUE]...
//
// Prints one JSON object on rank 0. L is the mean number of labels of a sample, as the run's metrics have it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "common/plan/job.h"
#include "common/plan/parameters.h"
#include "trainer/comm/world.h"
#include "trainer/ops/linear.h"

namespace mm {
namespace {

using Clock = std::chrono::steady_clock;

// The least time of several, of which each is as many calls as take about 20 ms.
template <class Body>
double seconds_of(const Body& body) {
  double best = 1e30;
  int calls = 1;
  for (int round = 0; round < 9; ++round) {
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < calls; ++i) body();
    const double all = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::min(best, all / calls);
    calls = std::clamp(static_cast<int>(0.02 / best), 1, 1000);
  }
  return best;
}

// Operations a second of a layer's three products whose narrowest side is `width`.
double product_rate(tensor::ThreadPool& pool, int64_t width) {
  const int64_t rows = 512, in = 512, out = width;
  const std::vector<float> x(static_cast<size_t>(rows * in), 0.5f), w(static_cast<size_t>(out * in), 0.25f);
  std::vector<float> y(static_cast<size_t>(rows * out)), dx(x.size()), dw(w.size());
  const double seconds = seconds_of([&] {
    ops::linear<float>(pool, x.data(), w.data(), nullptr, nullptr, y.data(), rows, in, out);
    ops::linear_grad_input<float>(pool, y.data(), w.data(), dx.data(), rows, in, out, false);
    ops::linear_grad_weight<float>(pool, y.data(), x.data(), dw.data(), rows, in, out);
    std::fill(dw.begin(), dw.end(), 0.0f);
  });
  return 3 * 2.0 * static_cast<double>(rows * in * out) / seconds;
}

plan::Machine measure(comm::Comm& world) {
  plan::Machine m;
  tensor::ThreadPool pool(1);
  world.barrier();
  // rate(w) = flops w / (w + half)
  const double wide = product_rate(pool, 512), narrow = product_rate(pool, 64);
  m.half_width = std::max(0.0, 64 * 512 * (wide - narrow) / (512 * narrow - 64 * wide));
  m.flops = wide * (512 + m.half_width) / 512;
  m.efficiency = 1;
  std::vector<float> from(1 << 23, 1.0f), to(from.size());
  world.barrier();
  m.memory_bandwidth = 2.0 * static_cast<double>(from.size() * sizeof(float)) /
                       seconds_of([&] { std::memcpy(to.data(), from.data(), from.size() * sizeof(float)); });
  m.ranks_of_node = world.size();
  if (world.size() > 1) {
    const double ranks = world.size();
    const auto both = [&](int64_t n, int calls) {
      world.barrier();
      const Clock::time_point begin = Clock::now();
      for (int i = 0; i < calls; ++i) {
        const std::vector<int64_t> bounds = comm::bounds_of(n, world.size());
        world.begin_reduce_scatter(to.data(), std::span<const int64_t>(bounds)).wait();
        world.begin_all_gather(to.data(), std::span<const int64_t>(bounds)).wait();
      }
      return std::chrono::duration<double>(Clock::now() - begin).count() / (2 * calls);
    };
    m.inside.latency = both(world.size(), 500);
    const double bytes = static_cast<double>(to.size() * sizeof(float)) * (ranks - 1) / ranks;
    m.inside.bandwidth = bytes / (both(static_cast<int64_t>(to.size()), 5) - m.inside.latency);
  }
  m.data_overlap = 0;  // the ranks' cores have nothing to spare
  m.reserved = 0;
  return m;
}

int run(int argc, char** argv) {
  CLI::App app("What the plan's model says of a job on this machine.", "plan-machine");
  std::string file;
  std::vector<std::string> sets;
  double labels = 0;
  app.add_option("JOB", file)->required();
  app.add_option("--set", sets)->allow_extra_args(false);
  app.add_option("--labels", labels)->required();
  CLI11_PARSE(app, argc, argv);
  const std::unique_ptr<comm::Comm> world = comm::open_world();
  const plan::Machine machine = measure(*world);
  if (world->rank() == 0) {
    plan::JobPlan of = plan::plan_of_job(load_job(file, sets), world->size());
    of.batch.labels = labels;
    of.batch.length = static_cast<double>(of.model.features) + labels;
    const plan::Plan p = plan::make_plan(of.model, of.batch, of.parallelism, of.numbers, machine);
    // A save copies what a rank owns and writes it beside the training.
    int64_t copied = 0;
    for (const plan::Run& run : plan::runs_of_stage(of.model, of.parallelism, 0))
      copied += plan::largest_part(run.size, plan::holders_of(run, of.parallelism)) * run.times *
                (of.numbers.value + (run.trained ? of.numbers.moments : 0));
    const nlohmann::ordered_json out = {{"step_s", p.step_seconds},
                                        {"compute_s", p.compute_seconds},
                                        {"bubble", p.bubble},
                                        {"memory_mib", static_cast<double>(p.largest_memory().total() + copied) / (1 << 20)},
                                        {"gflops", machine.flops / 1e9},
                                        {"half_width", machine.half_width},
                                        {"memory_gbs", machine.memory_bandwidth / 1e9},
                                        {"message_us", machine.inside.latency * 1e6},
                                        {"message_gbs", machine.inside.bandwidth / 1e9}};
    std::puts(out.dump().c_str());
  }
  comm::close_world(0);
  return 0;
}

}  // namespace
}  // namespace mm

int main(int argc, char** argv) try {
  return mm::run(argc, argv);
} catch (const std::exception& e) {
  std::fprintf(stderr, "plan-machine: %s\n", e.what());
  return 1;
}
