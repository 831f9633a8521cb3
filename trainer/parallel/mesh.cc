// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/mesh.h"

#include <fmt/format.h>

#include "common/error.h"

namespace mm::parallel {

Mesh make_mesh(comm::Comm& world, const Layout& decoder, const Layout& encoder) {
  const int decoders = decoder.world_size(), encoders = encoder.world_size();
  if (world.size() != decoders + encoders)
    throw usage_error(fmt::format("layout: tp {} x cp {} x dp {} x pp {}{} = {} ranks, and there are {}", decoder.tp, decoder.cp,
                                  decoder.dp, decoder.pp,
                                  encoders > 0 ? fmt::format(" + encoder tp {} x dp {}", encoder.tp, encoder.dp) : "",
                                  decoders + encoders, world.size()));
  Mesh mesh;
  mesh.decoder = decoder;
  mesh.encoder = encoder;
  mesh.encodes = world.rank() >= decoders;
  mesh.layout = mesh.encodes ? encoder : decoder;
  const int first = mesh.encodes ? decoders : 0;  // rank of the grid
  mesh.at = mesh.layout.coordinates(world.rank() - first);
  mesh.world = &world;
  const Coordinates at = mesh.at;
  // A group is named by the coordinates that its ranks have in common: the rank where the others are 0.
  const auto with = [&](const Coordinates& common) { return first + mesh.layout.rank(common); };
  mesh.tp = world.split(with({0, at.cp, at.dp, at.pp}), "tp");
  mesh.cp = world.split(with({at.tp, 0, at.dp, at.pp}), "cp");
  mesh.pp = world.split(with({at.tp, at.cp, at.dp, 0}), "pp");
  mesh.data = world.split(with({at.tp, 0, 0, at.pp}), "data");
  mesh.stage = world.split(with({0, 0, 0, at.pp}), "stage");
  mesh.replica = world.split(with({0, 0, at.dp, 0}), "replica");
  mesh.tied = world.split(mesh.first_stage() || mesh.last_stage() ? with({at.tp, 0, 0, 0}) : -1, "tied");
  mesh.encoder_share = world.split(mesh.first_stage() && encoders == 0 ? with({0, 0, at.dp, 0}) : -1, "encoder_share");
  for (int d = 0; encoders > 0 && d < decoder.dp; ++d)
    mesh.bridges.push_back(
        world.split(mesh.encodes || (mesh.first_stage() && at.dp == d) ? 0 : -1, "bridge" + std::to_string(d)));
  return mesh;
}

}  // namespace mm::parallel
