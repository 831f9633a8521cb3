// SPDX-License-Identifier: Apache-2.0
// The one exception type that our programs throw for what a user can understand, and the exit statuses that it carries.
// A message names what was being done, to which object, and why it failed.
#pragma once

#include <stdexcept>
#include <string>

namespace mm {

// Exit statuses of every command. Only internal, requeue, peer_lost and deaths by signal may be restarted.
namespace exit_status {
inline constexpr int ok = 0;
inline constexpr int found = 1;       // a tool that checks found something wrong
inline constexpr int usage = 2;       // wrong use or configuration
inline constexpr int data = 3;        // data, or checkpoints but none that loads
inline constexpr int numeric = 4;     // non-finite loss
inline constexpr int internal = 70;
inline constexpr int requeue = 75;    // saved, and asks for requeue
inline constexpr int peer_lost = 76;  // lost a peer or a device
}  // namespace exit_status

struct Error : std::runtime_error {
  Error(int exit_with, const std::string& message) : std::runtime_error(message), status(exit_with) {}
  int status;
};

inline Error usage_error(const std::string& message) { return Error(exit_status::usage, message); }
inline Error data_error(const std::string& message) { return Error(exit_status::data, message); }

// "VERB OBJECT: reason of errno"; takes errno at the call.
Error system_error(const std::string& what, int errno_value, int status = exit_status::internal);

}  // namespace mm
