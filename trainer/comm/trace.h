// SPDX-License-Identifier: Apache-2.0
// Whether ranks do the same together: found from what they began, without waiting for one that hangs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trainer/comm/comm.h"

namespace mm::comm {

// Element r is the trace of rank r of the world. Empty where all ranks of every group began the same collectives in the same
// order, and every message that was sent is one that was received; else the first difference.
std::string first_difference(std::span<const std::vector<Traced>> traces);

}  // namespace mm::comm
