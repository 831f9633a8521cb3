// SPDX-License-Identifier: Apache-2.0
// TCP between the ranks of a job: who may connect proves it with 128 random bits that ranks got through their own group; then
// messages of any length. Every wait has a deadline, and an error names the other side. All functions throw Error.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/files.h"

namespace mm::checkpoint::wire {

using Clock = std::chrono::steady_clock;

// Where a rank listens: its addresses, those that other machines can reach first, and the token.
struct Door {
  std::string token;  // 16 bytes
  uint16_t port = 0;
  std::vector<std::string> addresses;
};
std::string text_of(const Door& door);
Door parse_door(const std::string& text);
// A listening socket, and the door that leads to it.
std::pair<UniqueFd, Door> open_door(int backlog);

// Takes one connection that waits on the listener; nullopt where it has another token, or is gone already. With it comes the
// number that the other side gave.
std::optional<std::pair<int, UniqueFd>> accept_one(int listener, const Door& door);
// Tries the addresses in turn.
UniqueFd connect_to(const Door& door, int number, const std::string& whom);

bool wait_readable(int fd, Clock::time_point until);  // false at the deadline
void send_message(int fd, const std::string& text, Clock::time_point until, const std::string& whom);
std::string receive_message(int fd, Clock::time_point until, const std::string& whom);
// Several texts in one.
std::string pack(const std::vector<std::string>& texts);
std::vector<std::string> unpack(const std::string& text);

std::string host_name();

}  // namespace mm::checkpoint::wire
