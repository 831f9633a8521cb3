// SPDX-License-Identifier: Apache-2.0
// hwloc topologies as Hardware: from an XML file, from this machine, or from the copy that the node's agent shares.
//
// An XML file is read by our own parser first (xml.h), and hwloc gets what that has understood: a file can name no other file
// and no entity, and a version that this hwloc does not read is told by name.
#pragma once

#include <optional>
#include <string>

#include "spank_plugin/placement/hardware.h"
#include "spank_plugin/placement/xml.h"

namespace mm::placement {

// `root` is a parsed <topology>. Throws a usage Error that names `source`.
Hardware read_hwloc_xml(const XmlElement& root, const std::string& source);

// Which of hwloc's backends look at this machine. `quick` leaves out those that start a GPU's driver library (seconds): GPUs
// are found by their PCI class, and links between them stay unknown.
enum class Discovery { full, quick };
Hardware read_this_machine(Discovery discovery);

// The agent's copy: one file, mapped by everybody at the same address. `share_this_machine` writes it under a temporary name
// and renames it, so that a reader has the old or the new one; throws an Error. `read_shared` returns nothing where there is no
// file, it is not root's (or ours), or it was made by another hwloc: the reader then looks itself. These functions touch the
// environment, so no other thread may.
void share_this_machine(const std::string& path);
std::optional<Hardware> read_shared(const std::string& path);
std::string shared_path(const std::string& run_dir, const std::string& node);

}  // namespace mm::placement
