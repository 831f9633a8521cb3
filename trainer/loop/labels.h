// SPDX-License-Identifier: Apache-2.0
// How many positions of samples are trained: what a loss is divided by.
#pragma once

#include <algorithm>
#include <span>

#include "trainer/data/sample.h"

namespace mm::loop {

inline int64_t trained_labels(std::span<const data::Sample> samples) {
  int64_t n = 0;
  for (const data::Sample& s : samples)
    n += std::count_if(s.labels.begin(), s.labels.end(), [](int32_t label) { return label != data::no_label; });
  return n;
}

}  // namespace mm::loop
