// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/placement.h"

#include <charconv>
#include <set>

namespace mm::loop {

std::vector<model::Chunk> chunks_of(const Setup& setup) {
  return model::chunks_of(setup.config.text.layers, setup.at.pp, setup.layout.pp, mm::pipeline(setup.job).chunks);
}

model::Placement placement(const Setup& setup) {
  if (setup.pairs) return {.tp = setup.layout.tp, .tp_rank = setup.at.tp};
  const model::VlmConfig& config = setup.config;
  std::set<int> layers;
  bool embeds = false, heads = false;
  for (const model::Chunk& chunk : chunks_of(setup)) {
    for (int layer = chunk.first_layer; layer < chunk.end_layer; ++layer) layers.insert(layer);
    embeds |= chunk.embeds;
    heads |= chunk.heads;
  }
  model::Placement out;
  out.tp = setup.layout.tp;
  out.tp_rank = setup.at.tp;
  const bool tied = config.text.tied, tied_across = tied && setup.layout.pp > 1;
  out.of = [layers, embeds, heads, tied, tied_across](const std::string& unit) -> model::Placement::Unit {
    if (unit == "embed") return {.held = embeds || (tied && heads), .tied = tied_across};
    if (unit == "head") return {.held = heads};
    if (unit == "projector" || unit.starts_with("vision.")) return {.held = embeds, .cut = false};
    int layer = -1;
    std::from_chars(unit.data() + unit.find('.') + 1, unit.data() + unit.size(), layer);
    return {.held = layers.contains(layer)};
  };
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
