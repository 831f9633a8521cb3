// SPDX-License-Identifier: Apache-2.0
// The time of a step.
//
// A stage's time for a micro-batch is that of its matrix products at the machine's efficiency for their width, or of reading its weights where that takes
// longer, of moving what it keeps for backward through memory (written and read going forward, read and answered going backward), and of
// waiting for its tensor peers; the context ring hides behind the attention that it feeds. The pipeline takes m micro-batches of its slowest
// stage, and the others' time once to fill and drain, which v chunks a rank divide by v (Narayanan et al., arXiv 2104.04473); a last group of
// fewer than pp micro-batches leaves gaps between its chunks. The sums of gradients hide behind the backward pass as far as
// Machine::data_overlap goes; gathers of updated values do not.
#include "common/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/error.h"
#include "common/plan/load.h"

namespace mm::plan {
namespace {

struct StageTime {
  double micro_batch = 0;  // compute, and waits for tensor and context peers
  double compute = 0;
  double message = 0;  // one hand-over to a neighbour
  double data = 0;     // sums and gathers of parameters, not hidden
  double optimizer = 0;
};

double attention_of(const Model& m, const Parallelism& p, const Load& l) {
  if (l.stage == p.mesh.pp) return 0;
  const Work w = layer_work(m.text, l.length, true).attention;
  return l.samples * static_cast<double>(l.layers) * w.total() / (p.mesh.tp * p.mesh.cp);
}

// The narrowest side of a layer's products on a rank.
double width_of(const Model& m, const Parallelism& p, const Load& l) {
  const bool encoder = l.stage == p.mesh.pp;
  const Layers& layers = encoder ? m.vision : m.text;
  const int tp = encoder ? p.encoder_tp : p.mesh.tp;
  const double rows = encoder ? l.pictures * static_cast<double>(m.vision_positions()) : l.rows;
  return std::min(rows, static_cast<double>(std::min(largest_part(layers.heads, tp) * layers.head_size, largest_part(layers.intermediate, tp))));
}

StageTime time_of(const Model& m, const Parallelism& p, const Numbers& numbers, const Machine& machine, const Load& l, const Work& work,
                  const std::vector<Volume>& volumes, const std::vector<Run>& runs) {
  const double width = width_of(m, p, l), micro_batches = static_cast<double>(l.micro_batches);
  const double rate = machine.flops * machine.efficiency * width / (width + machine.half_width);
  const double again = recomputed_work(m, p, l);
  double weights = 0, owned = 0;
  for (const Run& run : runs) {
    weights += static_cast<double>(run.size * run.times);
    if (run.trained) owned += static_cast<double>((p.zero >= 1 ? largest_part(run.size, holders_of(run, p)) : run.size) * run.times);
  }
  Parallelism keeps = p;
  keeps.recompute = false;
  const double moved = saved_elements(m, keeps, l) * static_cast<double>(numbers.activation) * (p.recompute ? 7 : 5);
  const double passes = p.recompute ? 4 : 3;
  StageTime t;
  t.compute = std::max((work.total() + again) / rate, passes * weights * static_cast<double>(numbers.value) / machine.memory_bandwidth) +
              moved / machine.memory_bandwidth;
  t.micro_batch = t.compute;
  double reduced = 0, hidden_share = 0;
  for (const Volume& v : volumes) {
    const double each = v.seconds / micro_batches;
    switch (v.group) {
      case Group::tensor:
      case Group::encoder: t.micro_batch += each; break;
      case Group::context: t.micro_batch += std::max(0.0, each - attention_of(m, p, l) / rate); break;
      case Group::pipeline: t.message = v.seconds / v.calls; break;
      default: reduced += v.seconds;
    }
  }
  // Of the bytes, those that sums of gradients and (ZeRO 3) gathers ahead of their use take.
  const double value = static_cast<double>(numbers.value), gradient = static_cast<double>(numbers.gradient);
  hidden_share = p.zero == 0 ? 0.5 : p.zero == 3 ? 1 : gradient / (gradient + value);
  const double backward = t.compute * (p.zero >= 2 ? micro_batches : 1) * 2 / 3;
  t.data = reduced - std::min(machine.data_overlap * hidden_share * reduced, backward);
  const double bytes = static_cast<double>(numbers.gradient + 2 * numbers.moments + 2 * numbers.value + 2 * numbers.master);
  t.optimizer = owned * bytes / machine.memory_bandwidth;
  return t;
}

// Micro-batches that a last, smaller group of an interleaved schedule lacks, in passes of all of a stage's chunks but one. Exact up to pp
// micro-batches, at most a third too much above.
double gaps_of(const Parallelism& p, int64_t micro_batches) {
  const int64_t rest = micro_batches % p.mesh.pp;
  return rest == 0 ? 0 : static_cast<double>((p.mesh.pp - rest) * (p.chunks - 1)) / p.chunks;
}

double model_flops(const Model& m, const Batch& batch) {
  const bool dual = m.kind == Model::Kind::dual_tower;
  Work w = batch.images * (tower_work(m) + projector_work(m));
  w = w + static_cast<double>(m.text.count - (dual ? 0 : 1)) * layer_work(m.text, batch.length, m.train_text).total();
  if (!dual) w = w + last_layer_work(m.text, batch.length, batch.labels, m.train_text).total();
  return static_cast<double>(batch.samples) * (w + (dual ? 1 : batch.labels) * head_work(m)).total();
}

}  // namespace

const char* name(Group group) {
  switch (group) {
    case Group::tensor: return "tensor";
    case Group::context: return "context";
    case Group::pipeline: return "pipeline";
    case Group::data: return "data";
    case Group::stage: return "stage";
    case Group::tied: return "tied";
    case Group::encoder: return "encoder";
  }
  return "";
}

Numbers numbers_of(const std::string& dtype) {
  if (dtype == "float64") return {8, 8, 0, 16, 8};
  if (dtype == "bfloat16") return {2, 4, 4, 8, 2};
  return {};
}

int64_t Parallelism::micro_batches(const Batch& batch) const {
  const int64_t share = std::max<int64_t>(1, batch.samples / mesh.dp);
  return micro_batch == 0 ? 1 : largest_part(share, micro_batch);
}

int64_t layers_of_stage(int64_t layers, const Parallelism& p, int stage) {
  if (!p.layers.empty()) return p.layers[static_cast<size_t>(stage)];
  const int64_t pp = p.mesh.pp, pieces = pp * p.chunks, longer = layers % pieces;
  return layers / pieces * p.chunks + (longer > stage ? largest_part(longer - stage, pp) : 0);
}

const Memory& Plan::largest_memory() const {
  return std::ranges::max_element(stages, {}, [](const StagePlan& s) { return s.memory.total(); })->memory;
}

int64_t memory_needed(const Model& m, const Batch& batch, const Parallelism& p, const Numbers& numbers) {
  int64_t most = 0;
  const int stages = p.mesh.pp + (p.encoder_ranks() > 0 ? 1 : 0);
  int64_t layers = -1;
  for (int s = 0; s < stages; ++s) {
    const Load load = load_of(m, batch, p, s);
    // Of middle stages with as many layers, the first has most in flight.
    if (s > 1 && s < p.mesh.pp - 1 && load.layers == layers) continue;
    layers = load.layers;
    Memory memory = memory_of(m, p, numbers, load, runs_of_stage(m, p, s));
    memory.activations *= passes_in_flight(p, load.micro_batches, s);
    most = std::max(most, memory.total());
  }
  return most;
}

std::string why_impossible(const Model& m, const Batch& batch, const Parallelism& p) {
  const Layout& mesh = p.mesh;
  const auto above = [](const char* what, int64_t value, const char* limit, int64_t most) {
    return value > most ? fmt::format("{} {} is above the model's {} {}", what, value, most, limit) : "";
  };
  if (batch.samples % mesh.dp != 0) return fmt::format("dp {} does not divide the global batch of {}", mesh.dp, batch.samples);
  if (m.kind == Model::Kind::dual_tower) {
    if (mesh.pp > 1) return fmt::format("pp {}: a contrastive model has no pipeline; only tp, dp and zero", mesh.pp);
    if (mesh.cp > 1) return fmt::format("cp {}: a contrastive model has no context parallelism; only tp, dp and zero", mesh.cp);
    if (p.encoder_ranks() > 0) return "encoder: a contrastive model's towers share their ranks; only tp, dp and zero";
    if (auto why = above("tp", mesh.tp, "heads of the tower", m.vision.heads); !why.empty()) return why;
  }
  if (m.kind == Model::Kind::text && p.encoder_ranks() > 0) return "encoder: the model has none";
  if (auto why = above("tp", mesh.tp, "heads", m.text.heads); !why.empty()) return why;
  if (auto why = above("tp", mesh.tp, "words", m.vocabulary); !why.empty()) return why;
  if (auto why = above("the encoder's tp", p.encoder_tp, "heads of the tower", m.vision.heads); !why.empty()) return why;
  if (int64_t{mesh.pp} * p.chunks > m.text.count)
    return p.chunks > 1 ? fmt::format("pp {} x virtual {} = {} is above the model's {} layers", mesh.pp, p.chunks, mesh.pp * p.chunks, m.text.count)
                        : fmt::format("pp {} is above the model's {} layers", mesh.pp, m.text.count);
  if (const int64_t sum = std::reduce(p.layers.begin(), p.layers.end(), int64_t{0}); !p.layers.empty() && sum != m.text.count)
    return fmt::format("stages of {} layers, but the model has {}", sum, m.text.count);
  return "";
}

Plan make_plan(const Model& m, const Batch& batch, const Parallelism& p, const Numbers& numbers, const Machine& machine) {
  Plan plan;
  plan.parameters = parameters_of(m);
  plan.trained = trained_parameters_of(m);
  plan.model_flops = model_flops(m, batch);
  const int stages = p.mesh.pp + (p.encoder_ranks() > 0 ? 1 : 0);
  const double micro_batches = static_cast<double>(p.micro_batches(batch));
  double slowest = 0, sum = 0, fill = 0;
  StageTime time;
  std::vector<Volume> volumes;
  Load before;
  int64_t pass = 0;  // bytes of activations
  plan.stages.reserve(static_cast<size_t>(stages));
  plan.volumes.reserve(static_cast<size_t>(stages) * 7);
  for (int s = 0; s < stages; ++s) {
    const Load load = load_of(m, batch, p, s);
    StagePlan stage;
    const bool same = s > 1 && s < p.mesh.pp - 1 && load.layers == before.layers;  // as the stage before in all but its place
    if (same) {
      stage = plan.stages.back();
    } else {
      const std::vector<Run> runs = runs_of_stage(m, p, s);
      volumes = volumes_of(m, p, numbers, machine, load, runs);
      const Work work = stage_work(m, p, load);
      time = time_of(m, p, numbers, machine, load, work, volumes, runs);
      stage.layers = static_cast<int>(load.layers);
      stage.flops = {micro_batches * work.forward, micro_batches * work.backward, micro_batches * recomputed_work(m, p, load)};
      stage.busy = micro_batches * time.micro_batch;
      stage.memory = memory_of(m, p, numbers, load, runs);
      pass = stage.memory.activations;
    }
    for (Volume& v : volumes) {
      v.stage = s;
      plan.volumes.push_back(v);
    }
    stage.in_flight = passes_in_flight(p, load.micro_batches, s);
    stage.memory.activations = pass * stage.in_flight;
    plan.stages.push_back(stage);
    slowest = std::max(slowest, time.micro_batch);
    sum += time.micro_batch;
    fill += 2 * time.message;
    plan.compute_seconds = std::max(plan.compute_seconds, micro_batches * time.compute);
    plan.exposed_data_seconds = std::max(plan.exposed_data_seconds, time.data);
    plan.optimizer_seconds = std::max(plan.optimizer_seconds, time.optimizer);
    before = load;
  }
  const double pipeline = (micro_batches + gaps_of(p, p.micro_batches(batch))) * slowest + (sum - slowest) / p.chunks + fill;
  for (StagePlan& stage : plan.stages) stage.slack = micro_batches * slowest - stage.busy;
  plan.bubble = 1 - micro_batches * slowest / pipeline;
  plan.step_seconds = pipeline + plan.exposed_data_seconds + plan.optimizer_seconds;
  plan.mfu = plan.model_flops / (plan.step_seconds * p.ranks() * machine.flops);
  return plan;
}

}  // namespace mm::plan
