// SPDX-License-Identifier: Apache-2.0
// Where the agents of other nodes are: the address that Slurm has for the node, at the port of its slurmd plus the site's offset.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/slurm/parse.h"

namespace mm::agent {

struct NodeAddress {
  std::string address;  // as Slurm has it: a name or an IP address
  uint16_t slurmd_port = 0;
  sockaddr_storage agent = {};  // of its agent; family 0 where the name does not resolve
  socklen_t agent_size = 0;
};

using AddressBook = std::map<std::string, NodeAddress>;

// Resolves names, which may take long: for a worker.
AddressBook make_address_book(const std::vector<NodeRecord>& nodes, int port_offset);

}  // namespace mm::agent
