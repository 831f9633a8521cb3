// SPDX-License-Identifier: Apache-2.0
// Replicas: of a box that several ranks show, one writes it, so that the bytes that ranks write are as even as can be. All
// ranks find the same owners from the same keys, and keep them for as long as nobody shows other boxes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace mm::checkpoint {

class Owners {
 public:
  // For each view whether this rank writes it. Collective. A rank that shows a box twice writes it twice, which the check of
  // the commit refuses.
  const std::vector<bool>& mine(Group& group, const std::vector<ConstView>& views);

 private:
  std::string digests_;  // of what all ranks showed when owners_ was made
  std::vector<bool> owned_;
};

}  // namespace mm::checkpoint
