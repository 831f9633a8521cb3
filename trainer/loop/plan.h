// SPDX-License-Identifier: Apache-2.0
// What a layout costs, from the configuration alone: ranks and groups, parameters, memory of a rank by kind, floating-point
// operations of a step.
#pragma once

#include <string>
#include <vector>

#include "trainer/loop/setup.h"

namespace mm::loop {

struct Plan {
  int ranks = 1;
  int64_t parameters = 0, trained = 0;
  // Bytes of the rank that holds most. Activations are not counted.
  int64_t parameter_bytes = 0, gradient_bytes = 0, moment_bytes = 0;
  // Forward and backward (3 times the forward's) matrix products; causal attention counts half of its square.
  double flops_per_image = 0;     // tower and projector
  double flops_per_sequence = 0;  // decoder, for one image and `text_length` further positions
  int64_t text_length = 0;        // assumed: what data.max_length leaves, else 64
  double flops_per_step = 0;      // of all ranks
};
Plan plan(const Setup& setup);
std::string plan_text(const Setup& setup);
std::string plan_json(const Setup& setup);  // one line for the plan, then one for each rank

}  // namespace mm::loop
