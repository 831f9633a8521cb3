// SPDX-License-Identifier: Apache-2.0
// Whether this node's clock differs from those of its peers. Every heartbeat tells its sender's time; of the last eight of a peer the one that
// came fastest is the nearest to the truth. Only where most peers (and at least two) differ in the same direction is this node the odd one.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>

namespace mm::agent {

class ClockSkew {
 public:
  static constexpr double too_much = 1.0;  // seconds
  // `offset`: this node's time at the arrival minus the time in the heartbeat; delays make it larger, never smaller.
  void add(const std::string& peer, double offset);
  void forget(const std::string& peer) { peers_.erase(peer); }
  // Seconds by which this node is ahead of most peers (negative: behind); nothing where it is not.
  std::optional<double> skew() const;

 private:
  std::map<std::string, std::deque<double>> peers_;
};

}  // namespace mm::agent
