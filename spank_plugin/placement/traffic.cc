// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/placement/traffic.h"

#include <algorithm>
#include <functional>

namespace mm::placement {

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::tensor:
      return "tensor";
    case Kind::context:
      return "context";
    case Kind::data:
      return "data";
    case Kind::pipeline:
      return "pipeline";
    case Kind::stage:
      return "stage";
    case Kind::tied:
      return "tied";
    case Kind::encoder:
      return "encoder";
  }
  return "";
}

Amount Job::amount(Kind kind, int stage) const {
  const std::vector<Amount>& a = amounts[static_cast<size_t>(kind)];
  if (a.empty()) return {};
  return a.size() == 1 ? a.front() : static_cast<size_t>(stage) < a.size() ? a[static_cast<size_t>(stage)] : Amount{};
}

void set_nominal_amounts(Job& job) {
  constexpr double width = 4096, tokens = 4096, layers = 32, layer_parameters = 12.5 * width * width, value = 2;
  const Layout& m = job.mesh;
  const double activation = tokens / m.cp * width * value, micro_batches = 2.0 * m.pp, here = layers / m.pp * micro_batches;
  const auto ring = [](double bytes, int size) { return bytes * (size - 1) / size; };
  const auto set = [&](Kind kind, double bytes, double calls) { job.amounts[static_cast<size_t>(kind)] = {{bytes, calls}}; };
  for (std::vector<Amount>& a : job.amounts) a.clear();
  // Two reductions of activations forward and two backward in a layer, each a scatter and a gather.
  set(Kind::tensor, here * 4 * 2 * ring(activation, m.tp), here * 4);
  // Keys and values of a quarter of the heads go around once forward and, with their gradients, once and a half backward.
  set(Kind::context, here * (m.cp - 1) * activation / m.tp / 2 * 2.5, here * (m.cp - 1) * 2);
  // Gradients are scattered and parameters gathered.
  set(Kind::data, 2 * ring(layers / m.pp * layer_parameters / m.tp * value, m.dp * m.cp), 16);
  set(Kind::pipeline, micro_batches * activation / m.tp, micro_batches);
  // Half of 989 TFLOP/s, three passes.
  job.layer_seconds = micro_batches * 3 * 2 * layer_parameters * tokens / m.cp / m.tp / 495e12;
  if (job.encoder_ranks() > 0) set(Kind::encoder, micro_batches * activation / 4, micro_batches);
}

namespace {

// Every rank of the encoder makes a share of every replica's features, and sends it to all ranks of that replica's first stage and
// to the other makers; the sums of gradients go back. In huge jobs each rank of a first stage stands with some makers for all of
// them, turn by turn, that carry as much.
void add_encoder(const Job& job, std::vector<Family>& out) {
  constexpr int most_pairs = 1 << 17;
  const Layout& m = job.mesh;
  const int makers = job.encoder_ranks(), takers = m.tp * m.cp * m.dp;
  const Amount there = job.amount(Kind::encoder, m.pp), back = job.amount(Kind::encoder, 0);
  const bool apart = job.amounts[static_cast<size_t>(Kind::encoder)].size() > 1;  // of makers and of takers
  const double of_makers = apart ? there.bytes / (m.tp * m.cp + makers - 1) : 0;  // to one rank of each replica, or one maker
  const int partners = std::clamp(most_pairs / takers, 1, makers);
  const double bytes = apart ? (of_makers / m.dp + back.bytes / makers) / 2 : back.bytes / makers;
  Family pairs;
  pairs.kind = Kind::encoder;
  pairs.ring = false;
  for (int taker = 0; taker < takers; ++taker)
    for (int k = 0; k < partners; ++k) {
      const int maker = static_cast<int>((int64_t{taker} * partners + k) % makers);
      pairs.members.insert(pairs.members.end(), {m.world_size() + maker, taker});
      pairs.begin.push_back(static_cast<int>(pairs.members.size()));
      pairs.amounts.push_back({bytes * makers / partners, std::max(there.calls / m.dp, back.calls)});
    }
  if (bytes > 0) out.push_back(std::move(pairs));
  if (makers < 2 || of_makers <= 0) return;
  Family among;
  among.kind = Kind::encoder;
  for (int k = 0; k < makers; ++k) among.members.push_back(m.world_size() + k);
  among.begin.push_back(makers);
  among.amounts.push_back({of_makers * (makers - 1), there.calls});
  out.push_back(std::move(among));
}

}  // namespace

std::vector<Family> families_of(const Job& job) {
  const Layout& m = job.mesh;
  std::vector<Family> out;
  const auto add = [&](Kind kind, bool ring, const std::function<void(Family&)>& fill) {
    Family f;
    f.kind = kind;
    f.ring = ring;
    fill(f);
    if (f.size() > 0) out.push_back(std::move(f));
  };
  const auto close = [&](Family& f, int stage) {
    const Amount a = job.amount(f.kind, stage);
    if (f.members.size() - static_cast<size_t>(f.begin.back()) < 2 || (a.bytes <= 0 && a.calls <= 0)) {
      f.members.resize(static_cast<size_t>(f.begin.back()));
      return;
    }
    f.begin.push_back(static_cast<int>(f.members.size()));
    f.amounts.push_back(a);
  };
  add(Kind::tensor, true, [&](Family& f) {
    for (int first = 0; first < m.world_size(); first += m.tp) {
      for (int t = 0; t < m.tp; ++t) f.members.push_back(first + t);
      close(f, m.coordinates(first).pp);
    }
    for (int d = 0; d < job.encoder_dp; ++d) {
      for (int t = 0; t < job.encoder_tp; ++t) f.members.push_back(m.world_size() + d * job.encoder_tp + t);
      close(f, m.pp);
    }
  });
  add(Kind::context, true, [&](Family& f) {
    for (int p = 0; p < m.pp; ++p)
      for (int d = 0; d < m.dp; ++d)
        for (int t = 0; t < m.tp; ++t) {
          for (int c = 0; c < m.cp; ++c) f.members.push_back(m.rank({t, c, d, p}));
          close(f, p);
        }
  });
  add(Kind::data, true, [&](Family& f) {
    for (int p = 0; p < m.pp; ++p)
      for (int t = 0; t < m.tp; ++t) {
        for (int d = 0; d < m.dp; ++d)
          for (int c = 0; c < m.cp; ++c) f.members.push_back(m.rank({t, c, d, p}));
        close(f, p);
      }
    for (int t = 0; t < job.encoder_tp; ++t) {
      for (int d = 0; d < job.encoder_dp; ++d) f.members.push_back(m.world_size() + d * job.encoder_tp + t);
      close(f, m.pp);
    }
  });
  add(Kind::pipeline, false, [&](Family& f) {
    for (int d = 0; d < m.dp; ++d)
      for (int c = 0; c < m.cp; ++c)
        for (int t = 0; t < m.tp; ++t) {
          for (int p = 0; p < m.pp; ++p) f.members.push_back(m.rank({t, c, d, p}));
          close(f, 0);
        }
  });
  add(Kind::stage, true, [&](Family& f) {
    for (int p = 0; p < m.pp; ++p) {
      for (int r = 0; r < m.tp * m.cp * m.dp; ++r) f.members.push_back(m.rank({0, 0, 0, p}) + r);
      close(f, p);
    }
  });
  add(Kind::tied, true, [&](Family& f) {
    if (m.pp < 2) return;
    for (int r = 0; r < m.tp * m.cp * m.dp; ++r) {
      f.members.push_back(r);
      f.members.push_back(m.rank({0, 0, 0, m.pp - 1}) + r);
      close(f, 0);
    }
  });
  if (job.encoder_ranks() > 0) add_encoder(job, out);
  // Colocated: the ranks of a first stage share a replica's pictures.
  if (job.encoder_ranks() == 0)
    add(Kind::encoder, true, [&](Family& f) {
      for (int d = 0; d < m.dp; ++d) {
        for (int r = 0; r < m.tp * m.cp; ++r) f.members.push_back(m.rank({0, 0, d, 0}) + r);
        close(f, 0);
      }
    });
  return out;
}

}  // namespace mm::placement
