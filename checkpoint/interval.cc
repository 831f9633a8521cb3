// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interval.h"

#include <algorithm>
#include <cmath>

namespace mm::checkpoint {
namespace {

double daly(double cost, double mtbf) {
  if (cost >= 2 * mtbf) return mtbf;
  const double ratio = cost / (2 * mtbf);
  return std::sqrt(2 * cost * mtbf) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - cost;
}

}  // namespace

Interval best_interval(const SaveCosts& c) {
  Interval out;
  out.young = std::sqrt(2 * c.stall * c.mtbf);
  out.seconds = std::max(daly(c.stall, c.mtbf), c.flush);
  // A save that is not committed yet when the failure comes does not count: the work since the one before is lost too.
  const double again = out.seconds / 2 + c.flush;
  out.lost = std::min(1.0, (out.seconds > 0 ? c.stall / (out.seconds + c.stall) : 0) + (again + c.restart) / c.mtbf);
  return out;
}

double job_mtbf_seconds(double node_mtbf_hours, int nodes) {
  return node_mtbf_hours * 3600 / nodes;
}

}  // namespace mm::checkpoint
