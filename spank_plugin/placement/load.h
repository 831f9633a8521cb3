// SPDX-License-Identifier: Apache-2.0
// A topology file, whichever of the two kinds it is.
#pragma once

#include <string>

#include "spank_plugin/placement/hardware.h"
#include "spank_plugin/placement/xml.h"

namespace mm::placement {

// hwloc's or NCCL's XML. Throws a usage Error that names the file.
Hardware load_topology(const std::string& path);
// In two steps: much cheaper than the second is to see that two nodes are machines of one kind.
XmlElement read_topology(const std::string& path);
Hardware hardware_of(const XmlElement& root, const std::string& path);
// Equal for machines that differ in names, addresses and serial numbers alone.
std::string kind_of_machine(const XmlElement& root);
// The same for files of unknown origin: hwloc's own code trusts a topology more than one should, so that a child process reads
// the file first, and a file that crashes or holds up hwloc becomes an Error.
Hardware load_untrusted_topology(const std::string& path);

}  // namespace mm::placement
