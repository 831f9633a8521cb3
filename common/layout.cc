// SPDX-License-Identifier: Apache-2.0
#include "common/layout.h"

#include <fmt/format.h>

#include <cstdint>

#include "common/error.h"

namespace mm {

Layout layout_for(int tp, int cp, int pp, int tasks) {
  const int64_t model = int64_t{tp} * cp * pp;
  if (model < 1 || tasks < 1 || tasks % model != 0)
    throw usage_error(fmt::format("layout: {} tasks are not a multiple of tp {} x cp {} x pp {} = {}", tasks, tp, cp, pp, model));
  return {tp, cp, static_cast<int>(tasks / model), pp};
}

}  // namespace mm
