// SPDX-License-Identifier: Apache-2.0
// Slurm host lists: "n[01-03,7],rack[0-1]_blade[0-1],login" and back. The oracle is `scontrol show hostnames`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mm {

// In Slurm's order; duplicates stay. Text behind the last brackets, which Slurm refuses, is taken too. Throws a usage Error that quotes the list. At most 65,536 names
// of 1,024 characters.
std::vector<std::string> expand_hostlist(std::string_view list);
// Neighbours that differ in a trailing number are folded: {"n1","n2","n4"} -> "n[1-2,4]". Order is kept.
std::string compress_hostlist(const std::vector<std::string>& hosts);

}  // namespace mm
