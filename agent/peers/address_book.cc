// SPDX-License-Identifier: Apache-2.0
#include "agent/peers/address_book.h"

#include <fmt/format.h>
#include <netdb.h>

#include <cstring>
#include <memory>

#include "common/log.h"

namespace mm::agent {

AddressBook make_address_book(const std::vector<NodeRecord>& nodes, int port_offset) {
  AddressBook book;
  for (const NodeRecord& n : nodes) {
    NodeAddress entry;
    entry.address = n.address;
    entry.slurmd_port = n.port;
    const int port = n.port + port_offset;
    addrinfo hints = {}, *list = nullptr;
    hints.ai_socktype = SOCK_DGRAM;
    const int error = port < 1 || port > 65535 ? EAI_SERVICE : ::getaddrinfo(n.address.c_str(), std::to_string(port).c_str(), &hints, &list);
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(list, [](addrinfo* l) {
      if (l != nullptr) ::freeaddrinfo(l);
    });
    if (error == 0) {
      std::memcpy(&entry.agent, list->ai_addr, list->ai_addrlen);
      entry.agent_size = list->ai_addrlen;
    } else {
      log::warn("node {}: address {} port {}: {}", n.name, n.address, port, ::gai_strerror(error));
    }
    book.emplace(n.name, std::move(entry));
  }
  return book;
}

}  // namespace mm::agent
