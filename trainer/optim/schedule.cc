// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace mm::optim {

double learning_rate(const Schedule& s, int64_t step) {
  if (step < s.warmup) return s.lr * static_cast<double>(step + 1) / static_cast<double>(s.warmup);
  const double least = s.lr * s.min_lr_ratio;
  const double span = static_cast<double>(std::max<int64_t>(1, s.steps - s.warmup));
  return least + (s.lr - least) / 2 * (1 + std::cos(std::numbers::pi * static_cast<double>(step - s.warmup) / span));
}

double clip_scale(double norm, double clip) {
  return clip == 0 ? 1.0 : std::min(1.0, clip / (norm + 1e-6));
}

}  // namespace mm::optim
