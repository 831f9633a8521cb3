// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/mesh.h"

#include <fmt/format.h>

#include "common/error.h"

namespace mm::parallel {

Mesh make_mesh(comm::Comm& world, const Layout& layout) {
  if (world.size() != layout.world_size())
    throw usage_error(fmt::format("layout: tp {} x cp {} x dp {} x pp {} = {} ranks, and there are {}", layout.tp, layout.cp,
                                  layout.dp, layout.pp, layout.world_size(), world.size()));
  Mesh mesh;
  mesh.layout = layout;
  mesh.at = layout.coordinates(world.rank());
  mesh.world = &world;
  const Coordinates at = mesh.at;
  // A group is named by the coordinates that its ranks have in common: the rank where the others are 0.
  const auto with = [&](const Coordinates& common) { return layout.rank(common); };
  mesh.tp = world.split(with({0, at.cp, at.dp, at.pp}), "tp");
  mesh.cp = world.split(with({at.tp, 0, at.dp, at.pp}), "cp");
  mesh.pp = world.split(with({at.tp, at.cp, at.dp, 0}), "pp");
  mesh.data = world.split(with({at.tp, 0, 0, at.pp}), "data");
  mesh.stage = world.split(with({0, 0, 0, at.pp}), "stage");
  mesh.replica = world.split(with({0, 0, at.dp, 0}), "replica");
  mesh.tied = world.split(mesh.first_stage() || mesh.last_stage() ? with({at.tp, 0, 0, 0}) : -1, "tied");
  mesh.encoder_share = world.split(mesh.first_stage() ? with({0, 0, at.dp, 0}) : -1, "encoder_share");
  return mesh;
}

}  // namespace mm::parallel
