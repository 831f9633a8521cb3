// SPDX-License-Identifier: Apache-2.0
// The arithmetic of collectives.
#pragma once

#include <span>

#include "trainer/comm/comm.h"

namespace mm::comm {

int64_t size_of(Type type);  // bytes

enum class Combination : uint8_t { sum, largest };
// result[i] = x_0[i] + x_1[i] + ..., in this order, or the largest, which is NaN where there is one; i < n. `result` may be one
// of the x.
void combine(Combination combination, Type type, std::span<const void* const> x, int64_t n, void* result);

}  // namespace mm::comm
