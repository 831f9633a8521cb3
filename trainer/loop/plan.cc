// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/plan.h"

#include <fmt/format.h>

#include "common/error.h"
#include "common/site.h"

namespace mm::loop {

std::string as_assignments(const plan::Parallelism& p) {
  std::string out = fmt::format("parallel.tp={} parallel.cp={} parallel.pp={} parallel.zero={} parallel.micro_batch={} parallel.recompute={}",
                                p.mesh.tp, p.mesh.cp, p.mesh.pp, p.zero, p.micro_batch, p.recompute ? "full" : "none");
  if (p.chunks > 1) out += fmt::format(" parallel.virtual={}", p.chunks);
  return out;
}

PlanReport make_report(const TrainOptions& options, int ranks) {
  PlanReport r;
  r.job = load_job(options.job_file, options.assignments);
  r.of = plan::without_layout(r.job);
  if (r.of.model.kind == plan::Model::Kind::vlm) model::load_config(r.job.model.path);  // refuses what cannot be trained
  r.machine = plan::machine_of(load_site(), r.job.parallel.dtype);
  if (options.gpu_memory > 0) r.machine.memory = options.gpu_memory * 1e9;
  r.search = plan::suggest(r.of.model, r.of.batch, ranks, r.of.numbers, r.machine);
  try {
    r.of = plan::plan_of_job(r.job, ranks, stage_speeds());
  } catch (const Error& e) {
    if (!r.search.best) throw;
    throw usage_error(fmt::format("{}; possible is {}", e.what(), as_assignments(r.search.best->parallelism)));
  }
  r.plan = plan::make_plan(r.of.model, r.of.batch, r.of.parallelism, r.of.numbers, r.machine);
  return r;
}

std::string refusal(const PlanReport& r) {
  const plan::Memory& m = r.plan.largest_memory();
  const auto gb = [](int64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  std::string out = fmt::format(
      "{}: a rank needs {:.4g} GB (parameters {:.4g}, gradients {:.4g}, moments {:.4g}, activations {:.4g}, buffers {:.4g}) and {:.4g} for "
      "libraries; a GPU has {:.4g}",
      r.job.file, gb(m.total()), gb(m.parameters), gb(m.gradients), gb(m.moments), gb(m.activations), gb(m.buffers), r.machine.reserved / 1e9,
      r.machine.memory / 1e9);
  const auto& best = r.search.best;
  if (r.search.fits) return out + "; what fits is " + as_assignments(best->parallelism);
  if (best) out += fmt::format("; no layout fits: the least is {:.4g} GB", gb(best->plan.largest_memory().total()));
  return out;
}

}  // namespace mm::loop
