// SPDX-License-Identifier: Apache-2.0
// The machine's tree, searched once when the agent starts, by `mm-place share` in a process of its own (a GPU's driver library may take
// seconds, or crash), for programs that map it instead of searching themselves.
#pragma once

#include <string>

#include "agent/loop.h"
#include "common/site.h"

namespace mm::agent {

void share_topology(Loop& loop, const Site& site, const std::string& node);

}  // namespace mm::agent
