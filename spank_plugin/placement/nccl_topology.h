// SPDX-License-Identifier: Apache-2.0
// NCCL_TOPO_FILE: the PCI tree of a machine that hides it (virtual machines), as the provider describes it. <system> holds
// <cpu> (a NUMA node), which holds <pci> bridges and devices; a device may hold <gpu> and <nic><net/>. Devices that the file
// gives no class are not known to be GPUs.
#pragma once

#include <string>

#include "spank_plugin/placement/hardware.h"
#include "spank_plugin/placement/xml.h"

namespace mm::placement {

// `root` is a parsed <system>. Throws a usage Error that names `source`.
Hardware read_nccl_xml(const XmlElement& root, const std::string& source);

// What `hidden` (the operating system's view) leaves open, filled in by `described`: devices that both name get the described
// place; those that only one names stay.
Hardware merge(Hardware hidden, const Hardware& described);

}  // namespace mm::placement
