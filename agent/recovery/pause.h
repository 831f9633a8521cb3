// SPDX-License-Identifier: Apache-2.0
// How long to wait before a restart that follows others which brought no training step. Pure: chance comes in as a seed.
#pragma once

#include <cstdint>

namespace mm::recovery {

// Milliseconds before the restart that follows `fruitless` of them: none for the first two, then 1 s, 2 s, 4 s ... 60 s, of which a part between
// a half and all, so that jobs which failed together do not come back together.
int pause_before_restart(int fruitless, uint64_t seed);

}  // namespace mm::recovery
