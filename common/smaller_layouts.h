// SPDX-License-Identifier: Apache-2.0
// What a job goes on with where too few nodes are left, from `[recovery] layouts` of its job file: "same" is its own layout with fewer
// replicas; "tp=2,pp=1" is another one, in which what is not named is 1.
#pragma once

#include <vector>

#include "common/job.h"

namespace mm {

struct SmallerLayout {
  bool same = true;
  int tp = 1, cp = 1, pp = 1;
};
// In the order of the file. Throws a usage Error that quotes an entry which is neither.
std::vector<SmallerLayout> smaller_layouts(const Job& job);

}  // namespace mm
