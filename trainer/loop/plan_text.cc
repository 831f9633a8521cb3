// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "common/plan/flops.h"
#include "trainer/loop/plan.h"

namespace mm::loop {
namespace {

using plan::Group;

// Bytes in the unit that suits the largest rank.
struct Unit {
  double bytes = 1 << 30;
  const char* name = "GiB";
  double operator()(int64_t n) const { return static_cast<double>(n) / bytes; }
};
Unit unit_of(const PlanReport& r) { return r.memory() < (1 << 30) ? Unit{1 << 20, "MiB"} : Unit{}; }

// "3", "3-7", or "encoder".
std::string stages(const PlanReport& r, size_t first, size_t last) {
  if (first == static_cast<size_t>(r.of.parallelism.mesh.pp)) return "encoder";
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

// Calls `line` for each run of stages that `same` says are alike.
template <class Same, class Line>
void by_stages(const PlanReport& r, const Same& same, const Line& line) {
  const size_t pp = static_cast<size_t>(r.of.parallelism.mesh.pp);
  for (size_t first = 0, last = 0; first < r.plan.stages.size(); first = last + 1) {
    for (last = first; last + 1 < pp && same(last + 1, first);) ++last;
    line(first, last);
  }
}

std::string group_lines(const PlanReport& r) {
  const plan::Parallelism& p = r.of.parallelism;
  const Layout& l = p.mesh;
  const int world = l.world_size(), stage = world / l.pp;
  std::string out;
  const auto add = [&](const char* name, int size, int apart, const char* what) {
    if (size < 2) return;
    out += fmt::format("  {:<9}{:>7} of {:<6} ranks {:<6} apart   {}\n", name, world / size, size, apart, what);
  };
  add("tensor", l.tp, 1, "slices of layers");
  add("context", l.cp, l.tp, "parts of sequences");
  add("data", l.cp * l.dp, l.tp, "sums of gradients");
  add("pipeline", l.pp, stage, "layers");
  if (l.tp > 1) add("stage", stage, 1, "sums of gradients of what is not cut");
  if (p.encoder_ranks() > 0)
    out += fmt::format("  {:<9}ranks {} to {}: tp {} x dp {}\n", "encoder", world, p.ranks() - 1, p.encoder_tp, p.encoder_dp);
  return out.empty() ? "  none: one rank\n" : out;
}

std::string memory_lines(const PlanReport& r) {
  std::string out = fmt::format("  {:<9}{:>7}{:>10}{:>12}{:>11}{:>9}{:>13}{:>9}{:>9}\n", "stage", "layers", "in flight", "parameters", "gradients",
                                "moments", "activations", "buffers", "total");
  const size_t pp = static_cast<size_t>(r.of.parallelism.mesh.pp);
  const Unit in = unit_of(r);
  for (size_t i = 0; i < r.plan.stages.size(); ++i) {
    if (i > 1 && i + 1 < pp) {
      if (i == 2) out += "  ...      each with fewer in flight\n";
      continue;
    }
    const plan::StagePlan& s = r.plan.stages[i];
    const plan::Memory& m = s.memory;
    out += fmt::format("  {:<9}{:>7}{:>10}{:>12.3f}{:>11.3f}{:>9.3f}{:>13.3f}{:>9.3f}{:>9.3f}\n", stages(r, i, i), s.layers, s.in_flight,
                       in(m.parameters), in(m.gradients), in(m.moments), in(m.activations), in(m.buffers), in(m.total()));
  }
  return out;
}

std::string work_lines(const PlanReport& r) {
  std::string out = fmt::format("  {:<9}{:>11}{:>11}{:>11}{:>10}{:>10}\n", "stage", "forward", "backward", "again", "busy s", "slack s");
  by_stages(
      r,
      [&](size_t a, size_t b) { return r.plan.stages[a].busy == r.plan.stages[b].busy && r.plan.stages[a].layers == r.plan.stages[b].layers; },
      [&](size_t first, size_t last) {
        const plan::StagePlan& s = r.plan.stages[first];
        out += fmt::format("  {:<9}{:>11.4g}{:>11.4g}{:>11.4g}{:>10.4g}{:>10.4g}\n", stages(r, first, last), s.flops.forward / 1e12,
                           s.flops.backward / 1e12, s.flops.recompute / 1e12, s.busy, s.slack);
      });
  return out;
}

std::string traffic_lines(const PlanReport& r) {
  std::string out;
  const auto of = [&](size_t stage) {
    std::vector<const plan::Volume*> list;
    for (const plan::Volume& v : r.plan.volumes)
      if (static_cast<size_t>(v.stage) == stage) list.push_back(&v);
    return list;
  };
  by_stages(
      r,
      [&](size_t a, size_t b) {
        const auto x = of(a), y = of(b);
        return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const plan::Volume* v, const plan::Volume* w) {
          return v->group == w->group && v->bytes == w->bytes && v->calls == w->calls;
        });
      },
      [&](size_t first, size_t last) {
        for (const plan::Volume* v : of(first))
          out += fmt::format("  {:<9}{:<10}{:>7}{:>12.4g}{:>10.0f}{:>10.4g}\n", stages(r, first, last), plan::name(v->group), v->size,
                             v->bytes / (1 << 20), v->calls, 1000 * v->seconds);
      });
  if (out.empty()) return "  none\n";
  return fmt::format("  {:<9}{:<10}{:>7}{:>12}{:>10}{:>10}\n", "stage", "group", "ranks", "MiB", "calls", "ms") + out;
}

std::string suggestion_lines(const PlanReport& r) {
  const auto& best = r.search.best;
  if (!best) return "suggestion    none: no layout of so many ranks is possible with this model and batch\n";
  std::string out = fmt::format("suggestion    {}\n", as_assignments(best->parallelism));
  const Layout& l = best->parallelism.mesh;
  const Unit in = unit_of(r);
  out += fmt::format("              tp {} x cp {} x dp {} x pp {}: {:.4g} s a step in place of {:.4g}, MFU {:.1f} %, {:.4g} {} a rank{}\n", l.tp,
                     l.cp, l.dp, l.pp, best->plan.step_seconds, r.plan.step_seconds, 100 * best->plan.mfu,
                     in(best->plan.largest_memory().total()), in.name, r.search.fits ? "" : ", which is the least and does not fit");
  return out;
}

}  // namespace

std::string plan_text(const PlanReport& r) {
  const plan::Parallelism& p = r.of.parallelism;
  const plan::Batch& b = r.of.batch;
  const Layout& l = p.mesh;
  const plan::Machine& m = r.machine;
  const int64_t micro_batches = p.micro_batches(b);
  std::string out = fmt::format("ranks         {} = tp {} x cp {} x dp {} x pp {}{}, zero {}, {}, recompute {}\n", p.ranks(), l.tp, l.cp, l.dp, l.pp,
                                p.encoder_ranks() > 0 ? fmt::format(" + encoder tp {} x dp {}", p.encoder_tp, p.encoder_dp) : "", p.zero,
                                r.job.parallel.dtype, p.recompute ? "full" : "none");
  out += fmt::format("batch         {} samples a step, {} a replica in {} micro-batches{}\n", b.samples, b.samples / l.dp, micro_batches,
                     l.pp > 1 ? fmt::format("; {}{}, bubble {:.1f} %", pipeline(r.job).schedule,
                                            p.chunks > 1 ? fmt::format(" of {} chunks a rank", p.chunks) : "", 100 * r.plan.bubble)
                              : "");
  out += fmt::format("parameters    {}, of which {} are trained\n", r.plan.parameters, r.plan.trained);
  out += "groups\n" + group_lines(r);
  out += fmt::format("memory        {} of the rank with the most of each stage\n", unit_of(r).name) + memory_lines(r);
  out += fmt::format("operations    {:.4g} TFLOP a step in all; of a rank, and its time:\n", r.plan.model_flops / 1e12) + work_lines(r);
  out += "communication of a rank in a step, sent\n" + traffic_lines(r);
  out += fmt::format("step          {:.4g} s: of it {:.4g} s sums of gradients that nothing hides, {:.4g} s optimizer; MFU {:.1f} % of {:.4g} TFLOP/s\n",
                     r.plan.step_seconds, r.plan.exposed_data_seconds, r.plan.optimizer_seconds, 100 * r.plan.mfu, m.flops / 1e12);
  out += suggestion_lines(r);
  out += fmt::format(
      "assumed       {:.4g} pictures and {:.4g} positions a sample, {:.4g} labels; a GPU of {:.4g} TFLOP/s, of which wide products reach {:.0f} %, "
      "{:.4g} GB less {:.4g}, {:.4g} GB/s; {:.4g} GB/s to {} ranks of a node, {:.4g} GB/s beyond\n",
      b.images, b.length, b.labels, m.flops / 1e12, 100 * m.efficiency, m.memory / 1e9, m.reserved / 1e9, m.memory_bandwidth / 1e9,
      m.inside.bandwidth / 1e9, m.ranks_of_node, m.across.bandwidth / 1e9);
  if (p.ranks() <= 16)
    for (int rank = 0; rank < l.world_size(); ++rank) {
      const Coordinates c = l.coordinates(rank);
      out += fmt::format("rank {:<8} tp {} cp {} dp {} pp {}\n", rank, c.tp, c.cp, c.dp, c.pp);
    }
  if (p.ranks() <= 16)
    for (int e = 0; e < p.encoder_ranks(); ++e)
      out += fmt::format("rank {:<8} encoder tp {} dp {}\n", l.world_size() + e, e % p.encoder_tp, e / p.encoder_tp);
  return out;
}

}  // namespace mm::loop
