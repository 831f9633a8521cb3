// SPDX-License-Identifier: Apache-2.0
// When each peer was last heard, and what follows from it. Time is an argument: nothing here reads a clock.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace mm::agent {

class Contacts {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // A new peer counts as heard now: it has the whole of the silence limit to be heard of.
  void set_peers(const std::set<std::string>& peers, TimePoint now) {
    std::erase_if(heard_, [&](const auto& entry) { return !peers.contains(entry.first); });
    for (const std::string& p : peers) heard_.try_emplace(p, now);
  }
  void heard(const std::string& peer, TimePoint now) {
    if (const auto at = heard_.find(peer); at != heard_.end()) at->second = now;
  }
  // After a stall of our own: nobody is judged by what we could not hear.
  void forgive(TimePoint now) {
    for (auto& [peer, time] : heard_) time = now;
  }
  bool knows(const std::string& peer) const { return heard_.contains(peer); }
  double age(const std::string& peer, TimePoint now) const {
    const auto at = heard_.find(peer);
    return at == heard_.end() ? 0 : std::chrono::duration<double>(now - at->second).count();
  }
  const std::map<std::string, TimePoint>& all() const { return heard_; }

  // The latest time at which this node and the peers heard since were more than half of a group of this node and `peers`.
  TimePoint last_majority(const std::vector<std::string>& peers, TimePoint now) const {
    std::vector<TimePoint> times;
    for (const std::string& p : peers)
      if (const auto at = heard_.find(p); at != heard_.end()) times.push_back(at->second);
    const size_t needed = (times.size() + 1) / 2;
    if (needed == 0) return now;
    std::sort(times.begin(), times.end(), std::greater<>());
    return times[needed - 1];
  }

 private:
  std::map<std::string, TimePoint> heard_;
};

}  // namespace mm::agent
