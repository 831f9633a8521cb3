// SPDX-License-Identifier: Apache-2.0
// The groups of one rank of a layout. All are split from one group, collectively and in one fixed order; ranks of a group are
// in the order of the layout (tp fastest, then cp, dp, pp).
//
// The gradient of a parameter is the sum over the ranks that hold a copy of it: a slice by tp, over data; one that the tp ranks
// hold whole, over stage; the tied embedding, over tied.
//
// A vision tower on ranks of its own is a second grid, tp x dp, whose ranks come after the decoder's. The groups of a rank are
// those of its grid; bridges join the two.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/layout.h"
#include "trainer/comm/comm.h"

namespace mm::parallel {

struct Mesh {
  Layout decoder, encoder;  // the encoder's has no ranks where the tower is on the decoder's first stage
  bool encodes = false;     // this rank is in the encoder's grid
  Layout layout;            // of this rank's grid
  Coordinates at;           // of this rank in it
  comm::Comm* world = nullptr;

  std::unique_ptr<comm::Comm> tp;       // same cp, dp, pp
  std::unique_ptr<comm::Comm> cp;       // same tp, dp, pp
  std::unique_ptr<comm::Comm> pp;       // same tp, cp, dp: one rank a stage
  std::unique_ptr<comm::Comm> data;     // cp x dp, same tp, pp
  std::unique_ptr<comm::Comm> stage;    // tp x cp x dp, same pp
  std::unique_ptr<comm::Comm> replica;  // tp x cp x pp, same dp; the rank 0 of the decoder's reads the data
  // Ranks of the first and the last stage with the same tp, first the first stage's; null on stages between.
  std::unique_ptr<comm::Comm> tied;
  // tp x cp of this dp on the first stage, among whom a colocated tower's pictures are dealt out; null on other stages, and
  // where the tower has its own ranks.
  std::unique_ptr<comm::Comm> encoder_share;
  // Of each replica of the decoder, where the tower has its own ranks: the first stage's ranks, then all of the encoder's. Null
  // where this rank is not among them.
  std::vector<std::unique_ptr<comm::Comm>> bridges;

  bool first_stage() const { return at.pp == 0; }
  bool last_stage() const { return at.pp == layout.pp - 1; }
  bool reads() const { return !encodes && replica->rank() == 0; }
  // Of this rank of the decoder; null where it has none.
  comm::Comm* bridge() const { return bridges.empty() || encodes ? nullptr : bridges[static_cast<size_t>(at.dp)].get(); }
};

// Collective. `world` outlives the mesh and has as many ranks as both layouts; throws a usage Error where it has not.
Mesh make_mesh(comm::Comm& world, const Layout& decoder, const Layout& encoder = {.tp = 0, .dp = 0});

}  // namespace mm::parallel
