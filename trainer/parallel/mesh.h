// SPDX-License-Identifier: Apache-2.0
// The groups of one rank of a layout. All are split from one group, collectively and in one fixed order; ranks of a group are
// in the order of the layout (tp fastest, then cp, dp, pp).
//
// The gradient of a parameter is the sum over the ranks that hold a copy of it: a slice by tp, over data; one that the tp ranks
// hold whole, over stage; the tied embedding, over tied.
#pragma once

#include <memory>
#include <string>

#include "common/layout.h"
#include "trainer/comm/comm.h"

namespace mm::parallel {

struct Mesh {
  Layout layout;
  Coordinates at;  // of this rank
  comm::Comm* world = nullptr;

  std::unique_ptr<comm::Comm> tp;       // same cp, dp, pp
  std::unique_ptr<comm::Comm> cp;       // same tp, dp, pp
  std::unique_ptr<comm::Comm> pp;       // same tp, cp, dp: one rank a stage
  std::unique_ptr<comm::Comm> data;     // cp x dp, same tp, pp
  std::unique_ptr<comm::Comm> stage;    // tp x cp x dp, same pp
  std::unique_ptr<comm::Comm> replica;  // tp x cp x pp, same dp; its rank 0 reads the data
  // Ranks of the first and the last stage with the same tp, first the first stage's; null on stages between.
  std::unique_ptr<comm::Comm> tied;
  // tp x cp of this dp on the first stage, among whom a colocated tower's pictures are dealt out; null on other stages.
  std::unique_ptr<comm::Comm> encoder_share;

  bool first_stage() const { return at.pp == 0; }
  bool last_stage() const { return at.pp == layout.pp - 1; }
};

// Collective. `world` outlives the mesh and has layout.world_size() ranks; throws a usage Error where it has not.
Mesh make_mesh(comm::Comm& world, const Layout& layout);

}  // namespace mm::parallel
