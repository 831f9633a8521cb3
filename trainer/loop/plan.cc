// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainer/comm/comm.h"

namespace mm::loop {
namespace {

double tower_flops(const model::VlmConfig& c) {
  const model::VisionConfig& v = c.vision;
  const double d = v.hidden, n = v.positions(), inner = v.intermediate, features = c.positions_per_image(), h = c.text.hidden;
  const double patches = 2.0 * v.patches() * (3.0 * v.patch * v.patch) * d;
  const double layer = 2 * n * (4 * d * d + 2 * d * inner) + 4 * n * n * d;
  const double projector = 2 * features * (d * h + h * h);
  return 3 * (patches + c.vision_layers * layer + projector);
}

double decoder_flops(const model::VlmConfig& c, double length, double trained) {
  const model::TextConfig& t = c.text;
  const double h = t.hidden, kv = static_cast<double>(t.head_size()) * t.kv_heads, inner = t.intermediate;
  const double layer = 2 * length * (2 * h * h + 2 * h * kv + 3 * h * inner) + 2 * length * length * h;
  return 3 * (t.layers * layer + 2 * trained * h * t.vocabulary);
}

}  // namespace

Plan plan(const Setup& setup) {
  const Job& job = setup.job;
  Plan p;
  p.ranks = setup.layout.world_size();
  for (const model::ParamSpec& s : setup.specs) {
    p.parameters += s.size();
    if (s.trained()) p.trained += s.size();
  }
  const int64_t element = job.parallel.dtype == "float64" ? 8 : 4;
  p.parameter_bytes = p.gradient_bytes = p.parameters * element;
  p.moment_bytes =
      2 * element * (job.parallel.zero >= 1 ? comm::part_of(p.parameters, 0, setup.layout.dp).size() : p.parameters);
  const int64_t positions = setup.config.positions_per_image(),
                most = setup.config.sequence_rule(job.data.max_length).max_length;
  p.text_length = most > positions && job.data.max_length > 0 ? most - positions : 64;
  p.flops_per_image = tower_flops(setup.config);
  p.flops_per_sequence =
      decoder_flops(setup.config, static_cast<double>(positions + p.text_length), static_cast<double>(p.text_length));
  p.flops_per_step = static_cast<double>(job.data.global_batch) * (p.flops_per_image + p.flops_per_sequence);
  return p;
}

std::string plan_text(const Setup& setup) {
  const Plan p = plan(setup);
  const Layout& l = setup.layout;
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  std::string out = fmt::format("ranks         {} = tp {} x cp {} x dp {} x pp {}, zero {}, {}\n", p.ranks, l.tp, l.cp, l.dp,
                                l.pp, setup.job.parallel.zero, setup.job.parallel.dtype);
  out += fmt::format("batch         {} samples a step, {} a rank\n", setup.job.data.global_batch,
                     setup.job.data.global_batch / l.dp);
  out += fmt::format("parameters    {}, of which {} are trained\n", p.parameters, p.trained);
  out += fmt::format(
      "memory        {:.1f} MiB a rank: parameters {:.1f}, gradients {:.1f}, moments {:.1f}; activations are not counted\n",
      mib(p.parameter_bytes + p.gradient_bytes + p.moment_bytes), mib(p.parameter_bytes), mib(p.gradient_bytes),
      mib(p.moment_bytes));
  out += fmt::format(
      "operations    {:.3g} a step, {:.3g} a rank; a picture {:.3g}, its sequence with {} positions of text {:.3g}\n",
      p.flops_per_step, p.flops_per_step / p.ranks, p.flops_per_image, p.text_length, p.flops_per_sequence);
  for (int r = 0; r < p.ranks; ++r) {
    const Coordinates c = l.coordinates(r);
    out += fmt::format("rank {:<8} tp {} cp {} dp {} pp {}\n", r, c.tp, c.cp, c.dp, c.pp);
  }
  return out;
}

std::string plan_json(const Setup& setup) {
  const Plan p = plan(setup);
  const Layout& l = setup.layout;
  std::string out = fmt::format(
      "{{\"ranks\":{},\"tp\":{},\"cp\":{},\"dp\":{},\"pp\":{},\"zero\":{},\"parameters\":{},\"trained\":{},\"parameter_bytes\":"
      "{},\"gradient_bytes\":{},"
      "\"moment_bytes\":{},\"flops_per_step\":{:.17g},\"flops_per_image\":{:.17g},\"flops_per_sequence\":{:.17g},\"text_"
      "length\":{}}}\n",
      p.ranks, l.tp, l.cp, l.dp, l.pp, setup.job.parallel.zero, p.parameters, p.trained, p.parameter_bytes, p.gradient_bytes,
      p.moment_bytes, p.flops_per_step, p.flops_per_image, p.flops_per_sequence, p.text_length);
  for (int r = 0; r < p.ranks; ++r) {
    const Coordinates c = l.coordinates(r);
    out += fmt::format("{{\"rank\":{},\"tp\":{},\"cp\":{},\"dp\":{},\"pp\":{}}}\n", r, c.tp, c.cp, c.dp, c.pp);
  }
  return out;
}

}  // namespace mm::loop
