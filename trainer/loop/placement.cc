// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/placement.h"

#include <charconv>
#include <set>

namespace mm::loop {
namespace {

bool of_pictures(const std::string& unit) {
  return unit == "projector" || unit.starts_with("vision.");
}

}  // namespace

std::vector<model::Chunk> chunks_of(const Setup& setup) {
  return model::chunks_of(setup.config.text.layers, setup.at.pp, setup.layout.pp, mm::pipeline(setup.job).chunks,
                          setup.stage_layers);
}

model::Placement placement(const Setup& setup) {
  if (setup.pairs) return {.tp = setup.layout.tp, .tp_rank = setup.at.tp};
  model::Placement out;
  out.tp = setup.encodes ? setup.encoder.tp : setup.layout.tp;
  out.tp_rank = setup.at.tp;
  if (setup.encodes) {
    out.of = [](const std::string& unit) -> model::Placement::Unit { return {.held = of_pictures(unit)}; };
    return out;
  }
  const model::VlmConfig& config = setup.config;
  std::set<int> layers;
  bool embeds = false, heads = false;
  for (const model::Chunk& chunk : chunks_of(setup)) {
    for (int layer = chunk.first_layer; layer < chunk.end_layer; ++layer) layers.insert(layer);
    embeds |= chunk.embeds;
    heads |= chunk.heads;
  }
  const bool tower = embeds && setup.encoder.world_size() == 0;
  const bool tied = config.text.tied, tied_across = tied && setup.layout.pp > 1;
  out.of = [layers, embeds, heads, tower, tied, tied_across](const std::string& unit) -> model::Placement::Unit {
    if (unit == "embed") return {.held = embeds || (tied && heads), .tied = tied_across};
    if (unit == "head") return {.held = heads};
    if (of_pictures(unit)) return {.held = tower, .cut = false};
    int layer = -1;
    std::from_chars(unit.data() + unit.find('.') + 1, unit.data() + unit.size(), layer);
    return {.held = layers.contains(layer)};
  };
  return out;
}

model::Makers makers(const Setup& setup) {
  if (setup.encoder.world_size() == 0) return {};
  model::Makers out{.first = setup.layout.tp * setup.layout.cp, .replicas = setup.encoder.dp, .tp = setup.encoder.tp, .trained = false};
  for (const model::ParamSpec& spec : setup.specs) out.trained |= spec.trained() && of_pictures(spec.unit);
  return out;
}

comm::Comm& group_of(const parallel::Mesh& mesh, model::Holders holders) {
  switch (holders) {
    case model::Holders::data:
      return *mesh.data;
    case model::Holders::stage:
      return *mesh.stage;
    case model::Holders::tied:
      break;
  }
  return *mesh.tied;
}

parallel::ScheduleKind schedule_kind(const Job& job) {
  const std::string name = mm::pipeline(job).schedule;
  if (name == "gpipe") return parallel::ScheduleKind::gpipe;
  return name == "interleaved" ? parallel::ScheduleKind::interleaved : parallel::ScheduleKind::one_f_one_b;
}

}  // namespace mm::loop
