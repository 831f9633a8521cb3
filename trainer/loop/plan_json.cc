// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "common/plan/flops.h"
#include "trainer/loop/plan.h"

namespace mm::loop {
namespace {

using Json = nlohmann::ordered_json;

void add_layout(Json& out, const plan::Parallelism& p) {
  out["tp"] = p.mesh.tp;
  out["cp"] = p.mesh.cp;
  out["dp"] = p.mesh.dp;
  out["pp"] = p.mesh.pp;
  out["encoder_tp"] = p.encoder_tp;
  out["encoder_dp"] = p.encoder_dp;
  out["virtual"] = p.chunks;
  out["zero"] = p.zero;
  out["micro_batch"] = p.micro_batch;
  out["recompute"] = p.recompute ? "full" : "none";
}

void add_memory(Json& out, const plan::Memory& m) {
  out["parameter_bytes"] = m.parameters;
  out["gradient_bytes"] = m.gradients;
  out["moment_bytes"] = m.moments;
  out["activation_bytes"] = m.activations;
  out["buffer_bytes"] = m.buffers;
  out["memory_bytes"] = m.total();
}

void add_time(Json& out, const plan::Plan& p) {
  out["bubble"] = p.bubble;
  out["step_s"] = p.step_seconds;
  out["mfu"] = p.mfu;
}

Json stage_json(const plan::StagePlan& s) {
  Json out;
  out["layers"] = s.layers;
  out["in_flight"] = s.in_flight;
  add_memory(out, s.memory);
  out["forward_flops"] = s.flops.forward;
  out["backward_flops"] = s.flops.backward;
  out["recompute_flops"] = s.flops.recompute;
  out["busy_s"] = s.busy;
  out["slack_s"] = s.slack;
  return out;
}

Json plan_line(const PlanReport& r) {
  const plan::JobPlan& of = r.of;
  Json out;
  out["ranks"] = of.parallelism.ranks();
  add_layout(out, of.parallelism);
  out["schedule"] = pipeline(r.job).schedule;
  out["micro_batches"] = of.parallelism.micro_batches(of.batch);
  out["parameters"] = r.plan.parameters;
  out["trained"] = r.plan.trained;
  add_memory(out, r.plan.largest_memory());
  out["fits"] = r.fits();
  out["flops_per_step"] = r.plan.model_flops;
  out["flops_per_image"] = (plan::tower_work(of.model) + plan::projector_work(of.model)).total();
  out["flops_per_sequence"] = plan::flops_of_batch(of.model, 0, std::vector<int64_t>{static_cast<int64_t>(of.batch.length)},
                                                   static_cast<int64_t>(of.batch.labels));
  add_time(out, r.plan);
  out["stages"] = Json::array();
  for (const plan::StagePlan& s : r.plan.stages) out["stages"].push_back(stage_json(s));
  out["communication"] = Json::array();
  for (const plan::Volume& v : r.plan.volumes)
    out["communication"].push_back(
        {{"stage", v.stage}, {"group", plan::name(v.group)}, {"ranks", v.size}, {"bytes", v.bytes}, {"calls", v.calls}, {"seconds", v.seconds}});
  if (r.search.best) {
    Json best;
    add_layout(best, r.search.best->parallelism);
    best["fits"] = r.search.fits;
    add_memory(best, r.search.best->plan.largest_memory());
    add_time(best, r.search.best->plan);
    out["suggestion"] = best;
  }
  out["assumed"] = {{"images", of.batch.images},
                    {"length", of.batch.length},
                    {"labels", of.batch.labels},
                    {"gpu_flops", r.machine.flops},
                    {"efficiency", r.machine.efficiency},
                    {"gpu_memory", r.machine.memory},
                    {"reserved", r.machine.reserved},
                    {"gpus_per_node", r.machine.ranks_of_node},
                    {"inside_bandwidth", r.machine.inside.bandwidth},
                    {"across_bandwidth", r.machine.across.bandwidth}};
  return out;
}

}  // namespace

std::string plan_json(const PlanReport& r) {
  const plan::Parallelism& p = r.of.parallelism;
  const Layout& l = p.mesh;
  std::string out = plan_line(r).dump() + "\n";
  for (int rank = 0; rank < p.ranks(); ++rank) {
    Json line;
    line["rank"] = rank;
    size_t stage = static_cast<size_t>(l.pp);
    if (rank < l.world_size()) {
      const Coordinates c = l.coordinates(rank);
      line["tp"] = c.tp;
      line["cp"] = c.cp;
      line["dp"] = c.dp;
      line["pp"] = c.pp;
      stage = static_cast<size_t>(c.pp);
    } else {
      line["encoder_tp"] = (rank - l.world_size()) % p.encoder_tp;
      line["encoder_dp"] = (rank - l.world_size()) / p.encoder_tp;
    }
    const plan::StagePlan& s = r.plan.stages[stage];
    line["memory_bytes"] = s.memory.total();
    line["flops"] = s.flops.total();
    out += line.dump() + "\n";
  }
  return out;
}

}  // namespace mm::loop
