// SPDX-License-Identifier: Apache-2.0
#include "agent/incidents/clock_skew.h"

#include <algorithm>
#include <vector>

namespace mm::agent {
namespace {

constexpr size_t window = 8, most_peers = 4096;

}  // namespace

void ClockSkew::add(const std::string& peer, double offset) {
  if (!peers_.contains(peer) && peers_.size() >= most_peers) return;
  auto& last = peers_[peer];
  last.push_back(offset);
  if (last.size() > window) last.pop_front();
}

std::optional<double> ClockSkew::skew() const {
  std::vector<double> ahead, behind;
  size_t known = 0;
  for (const auto& [peer, last] : peers_) {
    if (last.size() < window) continue;
    ++known;
    const double offset = *std::min_element(last.begin(), last.end());
    if (offset > too_much) ahead.push_back(offset);
    if (offset < -too_much) behind.push_back(offset);
  }
  auto& most = ahead.size() > behind.size() ? ahead : behind;
  if (most.size() < 2 || 2 * most.size() <= known) return std::nullopt;
  std::nth_element(most.begin(), most.begin() + static_cast<std::ptrdiff_t>(most.size() / 2), most.end());
  return most[most.size() / 2];
}

}  // namespace mm::agent
