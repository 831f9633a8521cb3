// SPDX-License-Identifier: Apache-2.0
// Network interfaces as the kernel announces them (rtnetlink): no polling, a change is known within a millisecond. The first list is read
// at the start; an overrun of the socket leads to a new list, so no change is ever missed for good.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "agent/loop.h"
#include "common/files.h"

namespace mm::agent {

struct NicState {
  bool present = false;
  bool up = false;       // set up by its admin
  bool carrier = false;  // the link works
  bool operator==(const NicState&) const = default;
  bool fine() const { return present && up && carrier; }
  // "carrier lost", "set down", "removed", "carrier"
  std::string describe() const;
};

// What one rtnetlink datagram says: by interface name.
std::map<std::string, NicState> parse_link_messages(const char* data, size_t size, bool* done = nullptr);

class NicProbe {
 public:
  using Handler = std::function<void(const std::string& nic, const NicState& before, const NicState& now)>;
  // Blocks for the first list (some microseconds); throws an Error where the kernel refuses.
  NicProbe(Loop& loop, Handler changed);
  NicState state(const std::string& nic) const;
  const std::map<std::string, NicState>& all() const { return nics_; }

 private:
  void request_list();
  void receive();
  void apply(const std::map<std::string, NicState>& news);

  Handler changed_;
  UniqueFd socket_;
  std::map<std::string, NicState> nics_;
  std::map<std::string, NicState> listing_;  // gathers an answer to request_list
  bool listing_active_ = false;
  bool first_ = true;
  FdWatch watch_;
};

// The interface that holds an address of this node; empty where none does.
std::string interface_of_address(const std::string& address);

}  // namespace mm::agent
