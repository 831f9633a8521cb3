// SPDX-License-Identifier: Apache-2.0
// The learning rate of a step: linear warm-up, then half a cosine down to lr * min_lr_ratio at the last step.
#pragma once

#include <cstdint>

namespace mm::optim {

struct Schedule {
  double lr = 1e-3, min_lr_ratio = 0.1;
  int64_t warmup = 4, steps = 1000;
};

// step < warmup: lr (step + 1) / warmup; else min + (lr - min) / 2 (1 + cos(pi (step - warmup) / max(1, steps - warmup))).
double learning_rate(const Schedule& schedule, int64_t step);
// What gradients are multiplied by: min(1, clip / (norm + 1e-6)); 1 where clip is 0.
double clip_scale(double norm, double clip);

}  // namespace mm::optim
