// SPDX-License-Identifier: Apache-2.0
// Whether a daemon's TCP port is served. For this node the kernel's table of listening sockets is asked (sock_diag): unlike a connect, it
// costs the daemon nothing and leaves no error line in its log. Other nodes are asked by a connect; only where there is a suspicion.
#pragma once

#include <cstdint>
#include <chrono>
#include <optional>
#include <string>

namespace mm::agent {

// Nothing where the kernel cannot tell.
std::optional<bool> port_is_listening(uint16_t port);

enum class PortAnswer { open, closed, silent };
// "open", "closed", "does not answer"
const char* describe(PortAnswer answer);
// Blocks for up to the deadline; for a worker. `address` is an IP address or a name.
PortAnswer connect_to_port(const std::string& address, uint16_t port, std::chrono::milliseconds deadline);

}  // namespace mm::agent
