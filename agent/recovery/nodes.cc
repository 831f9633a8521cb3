// SPDX-License-Identifier: Apache-2.0
#include "agent/recovery/nodes.h"

#include <algorithm>

namespace mm::recovery {

NodeChoice choose_nodes(const std::vector<std::string>& slots, const std::vector<std::string>& allocation,
                        const std::function<bool(const std::string&)>& usable) {
  const auto has = [](const std::vector<std::string>& list, const std::string& node) {
    return std::find(list.begin(), list.end(), node) != list.end();
  };
  std::vector<std::string> spare;
  for (const std::string& node : allocation)
    if (!has(slots, node) && usable(node)) spare.push_back(node);
  NodeChoice choice;
  size_t next = 0;
  for (const std::string& node : slots) {
    if (usable(node)) {
      choice.nodes.push_back(node);
    } else if (next < spare.size()) {
      choice.nodes.push_back(spare[next++]);
    } else {
      choice.missing.push_back(node);
    }
  }
  if (!choice.missing.empty()) choice.nodes.clear();
  return choice;
}

}  // namespace mm::recovery
