// SPDX-License-Identifier: Apache-2.0
#include "agent/peers/neighbours.h"

#include <algorithm>
#include <set>

namespace mm::agent {

std::vector<std::string> neighbours(const std::vector<std::string>& nodes, const std::string& self) {
  constexpr size_t all_watch_all = 8;
  const auto at = std::find(nodes.begin(), nodes.end(), self);
  if (at == nodes.end()) return {};
  const size_t n = nodes.size(), me = static_cast<size_t>(at - nodes.begin());
  std::set<size_t> places;
  std::vector<size_t> distances = {1, n * 38 / 100};
  if (n <= all_watch_all)
    for (distances.clear(); distances.size() + 1 < n;) distances.push_back(distances.size() + 1);
  for (const size_t d : distances) {
    places.insert((me + d) % n);
    places.insert((me + n - d) % n);
  }
  places.erase(me);
  std::vector<std::string> out;
  for (size_t p : places) out.push_back(nodes[p]);
  return out;
}

}  // namespace mm::agent
