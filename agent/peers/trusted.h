// SPDX-License-Identifier: Apache-2.0
// Whose credentials count among agents: root's and those of who runs this agent, or exactly the users that the site names.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

namespace mm::agent {

// Names or numbers. Throws a usage Error for a name that no user has.
std::set<uid_t> trusted_users(const std::vector<std::string>& names);

}  // namespace mm::agent
