// SPDX-License-Identifier: Apache-2.0
// Geometry of boxes within a tensor: what two boxes share, and as which contiguous runs of elements it lies in each of them.
#pragma once

#include <functional>
#include <optional>

#include "checkpoint/checkpoint.h"

namespace mm::checkpoint {

// As elements(), for extents from outside: nullopt where one is negative or the product exceeds 2^60.
std::optional<int64_t> checked_elements(const Extents& shape);
// Whether the box has the tensor's rank and lies within it.
bool lies_within(const Box& box, const Extents& global_shape);
// nullopt where they share no element. Both are boxes of one tensor.
std::optional<Box> intersection(const Box& a, const Box& b);

// Calls `run(source, target, count)` for each longest run of elements of `shared`, a part of both boxes, that is contiguous in
// both; source and target count elements from the box's first. Ascending in both.
void for_each_run(const Box& source, const Box& target, const Box& shared,
                  const std::function<void(int64_t, int64_t, int64_t)>& run);

// What is wrong with these boxes as the parts of one tensor: a hole or an overlap; empty where they tile it exactly.
std::string tiling_error(const Extents& global_shape, std::vector<Box> boxes);

std::string text_of(const Extents& extents);  // "[2, 3]"

}  // namespace mm::checkpoint
