// SPDX-License-Identifier: Apache-2.0
// The parallel layout: rank <-> coordinates by mixed-radix arithmetic. tp varies fastest, then cp, dp, and pp slowest, so that
// tensor-parallel peers are neighbours.
#pragma once

#include <string>

namespace mm {

struct Coordinates {
  int tp = 0, cp = 0, dp = 0, pp = 0;
};

struct Layout {
  int tp = 1, cp = 1, dp = 1, pp = 1;

  int world_size() const { return tp * cp * dp * pp; }
  Coordinates coordinates(int rank) const {
    return {rank % tp, rank / tp % cp, rank / (tp * cp) % dp, rank / (tp * cp * dp)};
  }
  int rank(const Coordinates& c) const { return c.tp + tp * (c.cp + cp * (c.dp + dp * c.pp)); }
};

// dp is what is left of `tasks`. Throws a usage Error with the numbers where tp * cp * pp does not divide them.
Layout layout_for(int tp, int cp, int pp, int tasks);

}  // namespace mm
