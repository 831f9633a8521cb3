// SPDX-License-Identifier: Apache-2.0
#include "agent/registry/pace.h"

#include <map>

#include "agent/incidents/robust.h"

namespace mm::agent {
namespace {

constexpr size_t least_group = 3;
constexpr double slow_factor = 1.2, slow_deviations = 6;

}  // namespace

std::vector<Straggler> find_stragglers(const std::vector<Pace>& paces) {
  std::map<std::string, std::vector<const Pace*>> groups;
  for (const Pace& p : paces) groups[p.group].push_back(&p);
  std::vector<Straggler> out;
  for (const auto& [name, group] : groups) {
    if (group.size() < least_group) continue;
    std::vector<double> seconds;
    for (const Pace* p : group) seconds.push_back(p->seconds);
    const double usual = median(seconds), limit = std::max(slow_factor * usual, usual + slow_deviations * robust_deviation(seconds));
    for (const Pace* p : group)
      if (p->seconds > limit) out.push_back({*p, usual});
  }
  return out;
}

}  // namespace mm::agent
