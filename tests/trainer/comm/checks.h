// SPDX-License-Identifier: Apache-2.0
// What every group must do, whatever carries its messages. All ranks call them; failures are recorded with GoogleTest.
#pragma once

#include "trainer/comm/comm.h"

namespace mm::comm {

// Each collective against plain loops, the longest vectors with `large` elements; groups that were split; messages; shared memory.
void check_collectives(Comm& comm, int64_t large);
// Many operations in flight, of several groups, begun in one order and waited for in others.
void check_flights(Comm& world, int seed, int operations);

}  // namespace mm::comm
