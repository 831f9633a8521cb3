// SPDX-License-Identifier: Apache-2.0
// Gradients against numbers that tests/trainer/freeze_reference.py froze.
#pragma once

#include <cmath>
#include <nlohmann/json_fwd.hpp>

#include "trainer/model/param.h"

namespace mm::test {

template <class T>
double norm(const T* x, int64_t n) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += double{x[i]} * double{x[i]};
  return std::sqrt(squares);
}

// Each tensor's gradient in norm and three projections, and all of them in norm, at 1e-12.
void expect_frozen_gradients(const nlohmann::json& frozen, model::ParamStore<double>& params);

}  // namespace mm::test
