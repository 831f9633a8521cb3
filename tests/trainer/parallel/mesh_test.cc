// SPDX-License-Identifier: Apache-2.0
// The groups of every layout of at most 8 ranks against their definition.
#include "trainer/parallel/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "common/error.h"
#include "tests/trainer/comm/harness.h"

namespace mm::parallel {
namespace {

std::vector<Layout> layouts(int most) {
  std::vector<Layout> all;
  for (int tp = 1; tp <= most; ++tp)
    for (int cp = 1; tp * cp <= most; ++cp)
      for (int dp = 1; tp * cp * dp <= most; ++dp)
        for (int pp = 1; tp * cp * dp * pp <= most; ++pp) all.push_back({tp, cp, dp, pp});
  return all;
}

std::vector<int> members(const std::unique_ptr<comm::Comm>& comm) {
  std::vector<int> all;
  for (int r = 0; comm && r < comm->size(); ++r) all.push_back(comm->world_rank(r));
  return all;
}

TEST(Mesh, GroupsAreTheirDefinition) {
  for (const Layout& layout : layouts(8)) {
    if (layout.world_size() % 2 == 1 && layout.world_size() > 3) continue;  // what 5 and 7 show, 2 and 3 show
    SCOPED_TRACE("tp " + std::to_string(layout.tp) + " cp " + std::to_string(layout.cp) + " dp " + std::to_string(layout.dp) +
                 " pp " + std::to_string(layout.pp));
    comm::on_threads(layout.world_size(), [&](comm::Comm& world) {
      const Mesh mesh = make_mesh(world, layout);
      const Coordinates at = layout.coordinates(world.rank());
      EXPECT_EQ(layout.rank(mesh.at), world.rank());
      const auto expect = [&](const std::unique_ptr<comm::Comm>& comm, const char* name,
                              const std::function<bool(const Coordinates&)>& in) {
        std::vector<int> all;
        for (int r = 0; r < layout.world_size(); ++r)
          if (in(layout.coordinates(r))) all.push_back(r);
        EXPECT_EQ(members(comm), all) << name << " of rank " << world.rank();
        EXPECT_TRUE(comm == nullptr || comm->world_rank(comm->rank()) == world.rank()) << name;
      };
      using C = const Coordinates&;
      expect(mesh.tp, "tp", [&](C c) { return c.cp == at.cp && c.dp == at.dp && c.pp == at.pp; });
      expect(mesh.cp, "cp", [&](C c) { return c.tp == at.tp && c.dp == at.dp && c.pp == at.pp; });
      expect(mesh.pp, "pp", [&](C c) { return c.tp == at.tp && c.cp == at.cp && c.dp == at.dp; });
      expect(mesh.data, "data", [&](C c) { return c.tp == at.tp && c.pp == at.pp; });
      expect(mesh.stage, "stage", [&](C c) { return c.pp == at.pp; });
      expect(mesh.replica, "replica", [&](C c) { return c.dp == at.dp; });
      const int last = layout.pp - 1;
      const bool end = at.pp == 0 || at.pp == last;
      expect(mesh.tied, "tied", [&](C c) { return end && c.tp == at.tp && (c.pp == 0 || c.pp == last); });
      expect(mesh.encoder_share, "encoder_share", [&](C c) { return at.pp == 0 && c.pp == 0 && c.dp == at.dp; });
    });
  }
}

// Each grid has groups of its own; the bridges are between them.
TEST(Mesh, AnEncoderOnItsOwnRanksIsAGridOfItsOwn) {
  for (const auto& [decoder, encoder] : {std::pair{Layout{2, 1, 2, 1}, Layout{2, 1, 2}}, {{1, 2, 1, 2}, {1, 1, 3}}, {{1, 1, 3, 1}, {2, 1, 1}}}) {
    const Layout d = decoder, e = encoder;
    comm::on_threads(d.world_size() + e.world_size(), [&](comm::Comm& world) {
      const Mesh mesh = make_mesh(world, d, e);
      const int decoders = d.world_size(), rank = world.rank();
      EXPECT_EQ(mesh.encodes, rank >= decoders);
      const int first = mesh.encodes ? decoders : 0;
      EXPECT_EQ(first + mesh.layout.rank(mesh.at), rank);
      std::vector<int> data, stage;
      for (int r = 0; r < mesh.layout.world_size(); ++r) {
        const Coordinates c = mesh.layout.coordinates(r);
        if (c.pp == mesh.at.pp) stage.push_back(first + r);
        if (c.pp == mesh.at.pp && c.tp == mesh.at.tp) data.push_back(first + r);
      }
      EXPECT_EQ(members(mesh.data), data);
      EXPECT_EQ(members(mesh.stage), stage);
      EXPECT_EQ(mesh.encoder_share, nullptr);
      EXPECT_EQ(mesh.reads(), !mesh.encodes && mesh.at.tp + mesh.at.cp + mesh.at.pp == 0);
      ASSERT_EQ(mesh.bridges.size(), static_cast<size_t>(d.dp));
      for (int replica = 0; replica < d.dp; ++replica) {
        std::vector<int> bridge;
        for (int r = 0; r < decoders; ++r)
          if (d.coordinates(r).pp == 0 && d.coordinates(r).dp == replica) bridge.push_back(r);
        for (int r = 0; r < e.world_size(); ++r) bridge.push_back(decoders + r);
        if (std::ranges::find(bridge, rank) == bridge.end()) bridge.clear();
        EXPECT_EQ(members(mesh.bridges[static_cast<size_t>(replica)]), bridge) << "rank " << rank << " replica " << replica;
      }
      EXPECT_EQ(mesh.bridge(), mesh.encodes || mesh.at.pp > 0 ? nullptr : mesh.bridges[static_cast<size_t>(mesh.at.dp)].get());
    });
  }
}

TEST(Mesh, RefusesAnotherNumberOfRanks) {
  const std::unique_ptr<comm::Comm> alone = comm::self_comm();
  EXPECT_THROW(make_mesh(*alone, Layout{2, 1, 1, 1}), Error);
  EXPECT_THROW(make_mesh(*alone, Layout{}, Layout{}), Error);
}

}  // namespace
}  // namespace mm::parallel
