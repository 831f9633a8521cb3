// SPDX-License-Identifier: Apache-2.0
// What ranks say to each other in a step.
//
// A layer under tensor and sequence parallelism gathers its rows twice and scatters sums twice going forward; going backward it gathers twice
// for the gradients, scatters twice, and gathers its inputs again, of which only a part was kept. Keys and values go round the context-parallel
// ring, in the backward pass with their gradients, which travel one step further to come home. Gradients are summed by each run's holders:
// once a step, or, where nobody keeps them whole (ZeRO 2, 3), once a micro-batch; ZeRO 3 gathers values before every pass.
#include <algorithm>
#include <cmath>

#include "common/plan/load.h"

namespace mm::plan {
namespace {

struct Span {
  int64_t stride = 1, size = 1;
};

// A group's ranks are `stride` apart. Where they span nodes, a collective uses the NICs of all its ranks of a node, a message one.
Link link_of(const Machine& machine, Group group, Span span) {
  if (span.stride * span.size <= machine.ranks_of_node) return machine.inside;
  if (group == Group::context || group == Group::pipeline || group == Group::encoder) return machine.across;
  const double members = static_cast<double>(std::max<int64_t>(1, machine.ranks_of_node / span.stride));
  return {machine.across.latency, std::min(machine.inside.bandwidth, members * machine.across.bandwidth)};
}

class Counter {
 public:
  Counter(Group group, int stage, Span span, const Machine& machine) : link_(link_of(machine, group, span)) {
    volume_.group = group;
    volume_.stage = stage;
    volume_.size = static_cast<int>(span.size);
  }
  // A gather or a scatter of so many bytes in all; a call takes its latency for each doubling of the group.
  void collective(double calls, double bytes) {
    const double size = volume_.size;
    add(calls, bytes * (size - 1) / size, calls * link_.latency * std::ceil(std::log2(size)));
  }
  void messages(double calls, double bytes) { add(calls, bytes, calls * link_.latency); }
  void put(std::vector<Volume>& to) const {
    if (volume_.size > 1 && volume_.calls > 0) to.push_back(volume_);
  }

 private:
  void add(double calls, double bytes, double latency) {
    volume_.calls += calls;
    volume_.bytes += bytes;
    volume_.seconds += latency + bytes / link_.bandwidth;
  }
  Volume volume_;
  Link link_;
};

void tensor(Counter& c, const Model& m, const Parallelism& p, double element, const Load& l) {
  const double times = static_cast<double>(l.micro_batches), again = p.recompute ? 1 : 0;
  const bool dual = m.kind == Model::Kind::dual_tower;
  const auto rows = [&](double calls, double count, double width) {
    c.collective(times * calls, times * calls * count * width * element);
  };
  const bool own_encoder = l.stage == p.mesh.pp;
  if (l.tower && (dual || own_encoder)) {
    const double n = l.pictures * static_cast<double>(m.vision_positions()), layers = static_cast<double>(m.used_vision_layers);
    rows(layers * (m.train_vision ? 10 + 4 * again : 4), n, static_cast<double>(m.vision.hidden));
  }
  if (own_encoder) return;
  const double h = static_cast<double>(m.text.hidden), whole_layers = static_cast<double>(l.layers) - (l.last && !dual ? 1 : 0);
  rows(whole_layers * (10 + 4 * again), l.rows, h);
  if (l.last && !dual) {
    rows(3 + again, l.rows, h);
    rows(7 + 3 * again + 2, l.labels, h);  // and the head's rows, there and back
    rows(3 * 2, l.labels, 1);              // largest logit, sum of exponentials, the label's
  }
  if (l.first && !dual) rows(2, l.rows, h);
}

void context(Counter& c, const Model& m, const Parallelism& p, double element, const Load& l) {
  const double steps = p.mesh.cp - 1;
  const int64_t heads = std::min(held_kv_heads(m.text, p.mesh.tp), largest_part(m.text.heads, p.mesh.tp));
  const double block = l.rows * 2 * static_cast<double>(heads * m.text.head_size) * element;
  const double calls = static_cast<double>(l.micro_batches * l.layers) * ((p.recompute ? 3 : 2) * steps + steps + 1);
  c.messages(calls, calls * block);
}

void pipeline(Counter& c, const Model& m, const Parallelism& p, double element, const Load& l) {
  const double calls = static_cast<double>(l.micro_batches) * (2 * p.chunks - (l.first ? 1 : 0) - (l.last ? 1 : 0));
  c.messages(calls, calls * l.rows * static_cast<double>(m.text.hidden) / p.mesh.tp * element);
}

// Gradients and values of the runs that `group` holds.
void reduction(Counter& c, const std::vector<Run>& runs, Group group, const Parallelism& p, const Numbers& numbers, const Load& l) {
  const double times = static_cast<double>(l.micro_batches);
  for (const Run& run : runs) {
    if (run.holders != group) continue;
    const double units = static_cast<double>(run.times), size = units * static_cast<double>(run.size);
    const double value = static_cast<double>(numbers.value), gradient = static_cast<double>(numbers.gradient);
    const int zero = zero_of(run, p);
    if (zero >= 3) c.collective(times * (run.trained ? 2 : 1) * units, times * (run.trained ? 2 : 1) * size * value);
    if (!run.trained) continue;
    const double sums = zero >= 2 ? times : 1;
    c.collective(sums * units, sums * size * gradient);
    if (zero == 0) c.collective(units, size * gradient);
    if (zero == 1 || zero == 2) c.collective(units, size * value);
  }
}

}  // namespace

std::vector<Volume> volumes_of(const Model& m, const Parallelism& p, const Numbers& numbers, const Machine& machine, const Load& l,
                               const std::vector<Run>& runs) {
  std::vector<Volume> out;
  const Layout& mesh = p.mesh;
  const bool own_encoder = l.stage == mesh.pp;
  const double element = static_cast<double>(numbers.activation);
  const int64_t all = p.ranks(), data = int64_t{mesh.cp} * mesh.dp;
  const auto count = [&](Group group, Span span, auto&& fill) {
    if (span.size < 2) return;
    Counter c(group, l.stage, span, machine);
    fill(c);
    c.put(out);
  };
  const auto reduce = [&](Group group, Span span) {
    count(group, span, [&](Counter& c) { reduction(c, runs, group, p, numbers, l); });
  };
  const double features = static_cast<double>(l.micro_batches) * l.pictures * static_cast<double>(m.features * m.text.hidden) * element;
  if (own_encoder) {
    count(Group::tensor, {1, p.encoder_tp}, [&](Counter& c) { tensor(c, m, p, element, l); });
    reduce(Group::data, {p.encoder_tp, p.encoder_dp});
    reduce(Group::stage, {1, int64_t{p.encoder_tp} * p.encoder_dp});
    count(Group::encoder, {1, all}, [&](Counter& c) {
      // Features to a replica's first stage and to the other makers; then the sums of their gradients, to which makers add nothing, but
      // send it to each other all the same.
      const double encoders = p.encoder_ranks(), calls = static_cast<double>(l.micro_batches * mesh.dp);
      c.messages(calls, features / p.encoder_tp * (mesh.tp * mesh.cp + encoders - 1));
      if (m.train_vision || m.train_projector) c.messages(calls, features * p.encoder_dp * (encoders - 1) / encoders);
    });
    return out;
  }
  count(Group::tensor, {1, mesh.tp}, [&](Counter& c) { tensor(c, m, p, element, l); });
  count(Group::context, {mesh.tp, mesh.cp}, [&](Counter& c) { context(c, m, p, element, l); });
  if (mesh.pp > 1)
    count(Group::pipeline, {mesh.tp * data, mesh.pp}, [&](Counter& c) { pipeline(c, m, p, element, l); });
  reduce(Group::data, {mesh.tp, data});
  reduce(Group::stage, {1, mesh.tp * data});
  if (mesh.pp > 1) reduce(Group::tied, {1, std::max<int64_t>(all, 2 * data)});
  if (l.tower && m.kind == Model::Kind::vlm)
    count(Group::encoder, {1, int64_t{mesh.tp} * mesh.cp}, [&](Counter& c) {
      // Every rank's pictures' features to all, and their gradients' sums back.
      const double shared = features * mesh.tp * mesh.cp;
      c.collective(static_cast<double>(2 * l.micro_batches), 2 * shared);
    });
  if (l.first && p.encoder_ranks() > 0)
    count(Group::encoder, {1, all}, [&](Counter& c) {
      const double rows = l.samples * static_cast<double>(l.micro_batches);
      if (m.train_vision || m.train_projector)
        c.messages(static_cast<double>(l.micro_batches), rows * static_cast<double>(m.features * m.text.hidden) * element);
    });
  return out;
}

}  // namespace mm::plan
