// SPDX-License-Identifier: Apache-2.0
// Statistics that a few odd values do not spoil.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace mm::agent {

// The middle value, of an even number the upper one; 0 of none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The standard deviation of normally distributed values, from the median of their distances to their median.
inline double robust_deviation(const std::vector<double>& values) {
  const double middle = median(values);
  std::vector<double> distances;
  for (const double v : values) distances.push_back(std::abs(v - middle));
  return 1.4826 * median(std::move(distances));
}

}  // namespace mm::agent
