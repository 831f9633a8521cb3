// SPDX-License-Identifier: Apache-2.0
#include "common/plan/job.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

#include "common/error.h"

namespace mm::plan {
namespace {

bool all_match(const std::vector<std::string>& patterns, const std::vector<std::string>& names) {
  return std::ranges::all_of(names, [&](const std::string& name) {
    return std::ranges::any_of(patterns, [&](const std::string& p) { return fnmatch(p.c_str(), name.c_str(), 0) == 0; });
  });
}

// A part is frozen where all kinds of its large tensors are; then it has no gradients at all.
void freeze(Model& m, const std::vector<std::string>& patterns) {
  const auto layers = [](const std::string& prefix, int64_t count, std::vector<std::string> names) {
    for (std::string& name : names) name = prefix + "layers." + std::to_string(std::max<int64_t>(0, count - 1)) + "." + name;
    return names;
  };
  const bool dual = m.kind == Model::Kind::dual_tower;
  const std::string tower = dual ? "vision_model." : "vision_tower.vision_model.";
  std::vector<std::string> vision = layers(tower + "encoder.", m.used_vision_layers, {"self_attn.q_proj.weight", "mlp.fc1.weight"});
  vision.push_back(tower + "embeddings.patch_embedding.weight");
  m.train_vision = !all_match(patterns, vision);
  const std::vector<std::string> projector = dual ? std::vector<std::string>{"visual_projection.weight", "text_projection.weight"}
                                                  : std::vector<std::string>{"multi_modal_projector.linear_1.weight"};
  m.train_projector = !all_match(patterns, projector);
  std::vector<std::string> text = dual ? layers("text_model.encoder.", m.text.count, {"self_attn.q_proj.weight", "mlp.fc1.weight"})
                                       : layers("language_model.model.", m.text.count, {"self_attn.q_proj.weight", "mlp.up_proj.weight"});
  text.push_back(dual ? "text_model.embeddings.token_embedding.weight" : "language_model.model.embed_tokens.weight");
  m.train_text = !all_match(patterns, text);
}

Schedule schedule_of(const std::string& name) {
  if (name == "gpipe") return Schedule::gpipe;
  return name == "interleaved" ? Schedule::interleaved : Schedule::one_f_one_b;
}

}  // namespace

JobPlan without_layout(const Job& job) {
  JobPlan out;
  out.model = read_model(job.model.path);
  Model& m = out.model;
  if (!job.model.freeze.empty()) freeze(m, job.model.freeze);
  out.numbers = numbers_of(job.parallel.dtype);
  Batch& b = out.batch;
  b.samples = job.data.global_batch;
  b.images = m.has_vision() ? 1 : 0;
  if (m.kind == Model::Kind::dual_tower) {
    b.length = static_cast<double>(job.data.max_length > 0 ? std::min(job.data.max_length, m.text_positions) : m.text_positions);
    b.labels = 1;
    return out;
  }
  const int64_t least = m.features + 3;  // begin, pictures, one byte, end
  int64_t length = m.features + assumed_text;
  if (job.data.max_length > 0) length = m.max_length > 0 ? std::min(job.data.max_length, m.max_length) : job.data.max_length;
  if (length < least)
    throw usage_error(fmt::format("{}: data.max_length {} has no room for a picture of {} positions and text", job.file, length, m.features));
  // The end is a label, but no position; the begin and the pictures have no labels.
  b.length = static_cast<double>(length - 1);
  b.labels = static_cast<double>(length - 1 - m.features);
  return out;
}

Machine machine_of(const Site& site, const std::string& dtype) {
  Machine m;
  m.flops = site.gpu_tflops * 1e12 / (dtype == "float32" ? 2 : dtype == "float64" ? 15 : 1);
  m.memory = site.gpu_memory * 1e9;
  m.memory_bandwidth = site.gpu_memory_bandwidth * 1e9;
  m.ranks_of_node = site.gpus_per_node;
  m.inside.bandwidth = site.gpu_link * 1e9;
  m.across.bandwidth = site.gpu_network * 1e9;
  return m;
}

Parallelism parallelism_of(const Job& job, const Model& model, int tasks) {
  const Layout mesh = job_layout(job, tasks), encoder = encoder_layout(job);
  const Pipeline pipe = pipeline(job);
  Parallelism p;
  p.mesh = mesh;
  p.encoder_tp = encoder.tp;
  p.encoder_dp = encoder.dp;
  p.chunks = pipe.chunks;
  p.schedule = schedule_of(pipe.schedule);
  p.zero = job.parallel.zero;
  p.micro_batch = job.parallel.micro_batch;
  p.recompute = job.parallel.recompute == "full";
  p.layers = stage_layers(job);
  const std::string why = why_impossible(model, {.samples = job.data.global_batch}, p);
  if (!why.empty())
    throw usage_error(fmt::format("{}: {} ranks as tp {} x cp {} x dp {} x pp {}: {}", job.file, tasks, mesh.tp, mesh.cp, mesh.dp, mesh.pp, why));
  return p;
}

JobPlan plan_of_job(const Job& job, int tasks, const std::vector<StageSpeed>& speeds) {
  job_layout(job, tasks);  // numbers of ranks first: no file is needed to see that they do not fit
  JobPlan out = without_layout(job);
  Parallelism& p = out.parallelism = parallelism_of(job, out.model, tasks);
  if (p.layers.empty() && speeds.size() == static_cast<size_t>(p.mesh.pp))
    p.layers = sized_stages(static_cast<int>(out.model.text.count), extra_work(out.model, out.batch, p), speeds, p.encoder_ranks() == 0, p.chunks);
  return out;
}

}  // namespace mm::plan
