// SPDX-License-Identifier: Apache-2.0
// A topology file, whichever of the two kinds it is.
#pragma once

#include <string>

#include "spank_plugin/placement/hardware.h"

namespace mm::placement {

// hwloc's or NCCL's XML. Throws a usage Error that names the file.
Hardware load_topology(const std::string& path);
// The same for files of unknown origin: hwloc's own code trusts a topology more than one should, so that a child process reads
// the file first, and a file that crashes or holds up hwloc becomes an Error.
Hardware load_untrusted_topology(const std::string& path);

}  // namespace mm::placement
