// SPDX-License-Identifier: Apache-2.0
// Evidence in words that a person understands, without a full stop.
#pragma once

#include <string>

#include "agent/recovery/policy.h"

namespace mm::recovery {

std::string describe(const Incident& incident);  // "node3 lost its training link eth1 (carrier lost)"
std::string describe(const RankExit& exit);      // "rank 2 on node3 was killed by signal 9 (Killed)"
std::string describe(const Hang& hang);          // "rank 2 on node3 made no progress for 31 s"

}  // namespace mm::recovery
