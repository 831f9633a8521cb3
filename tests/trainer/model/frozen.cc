// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/model/frozen.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/trainer/make_fixture.h"

namespace mm::test {
namespace {

double projection(const std::string& name, uint64_t stream, const double* x, int64_t n) {
  double dot = 0;
  for (int64_t i = 0; i < n; ++i)
    dot += x[i] * (static_cast<double>(fixture::hash(name, stream, static_cast<uint64_t>(i)) >> 11) * 0x1p-52 - 1);
  return dot;
}

}  // namespace

void expect_frozen_gradients(const nlohmann::json& frozen, model::ParamStore<double>& params) {
  const double all = norm(params.gradients(), params.gradient_elements());
  EXPECT_NEAR(all, frozen["steps"][0]["grad_norm"].get<double>(), 1e-12 * all);
  size_t reached = 0;
  for (size_t i = 0; i < params.specs().size(); ++i) {
    const model::ParamSpec& spec = params.specs()[i];
    const double* gradient = params.gradient(i);
    EXPECT_EQ(spec.reached, frozen["gradients"].contains(spec.name)) << spec.name;
    EXPECT_EQ(spec.reached, gradient != nullptr) << spec.name;
    if (!spec.reached) continue;
    ++reached;
    const nlohmann::json& expected = frozen["gradients"][spec.name];
    const double size = expected[0], tolerance = 1e-12 * size + 1e-15 * all;
    EXPECT_NEAR(norm(gradient, spec.size()), size, tolerance) << spec.name;
    for (uint64_t k = 1; k <= 3; ++k)
      EXPECT_NEAR(projection(spec.name, k, gradient, spec.size()), expected[k].get<double>(), tolerance)
          << spec.name << " " << k;
  }
  EXPECT_EQ(reached, frozen["gradients"].size());
}

}  // namespace mm::test
