// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace mm::comm {
namespace {

struct GroupTrace {
  int ranks = 0;
  std::map<int, std::vector<std::string>> collectives;  // of each rank
};
struct Messages {
  std::vector<std::string> sent, received;
};

std::string kth(const std::vector<std::string>& list, size_t k) {
  return k < list.size() ? list[k] : "nothing";
}

std::string difference(const std::vector<std::string>& a, const std::vector<std::string>& b, const std::string& who_a,
                       const std::string& who_b) {
  for (size_t k = 0; k < std::max(a.size(), b.size()); ++k)
    if (kth(a, k) != kth(b, k)) return fmt::format("number {}: {}: {}; {}: {}", k, who_a, kth(a, k), who_b, kth(b, k));
  return "";
}

}  // namespace

std::string first_difference(std::span<const std::vector<Traced>> traces) {
  std::map<std::string, GroupTrace> groups;
  std::map<std::tuple<std::string, int, int>, Messages> messages;  // group, from, to
  for (int rank = 0; rank < static_cast<int>(traces.size()); ++rank)
    for (const Traced& t : traces[static_cast<size_t>(rank)]) {
      if (t.peer < 0) {
        GroupTrace& group = groups[t.group];
        group.ranks = t.ranks;
        group.collectives[rank].push_back(t.what);
      } else if (t.outgoing) {
        messages[{t.group, rank, t.peer}].sent.push_back(t.what);
      } else {
        messages[{t.group, t.peer, rank}].received.push_back(t.what);
      }
    }
  for (const auto& [name, group] : groups) {
    if (static_cast<int>(group.collectives.size()) != group.ranks)
      return fmt::format("{}: {} of {} ranks began something", name, group.collectives.size(), group.ranks);
    const auto& [first, list] = *group.collectives.begin();
    for (const auto& [rank, other] : group.collectives) {
      const std::string found = difference(list, other, fmt::format("rank {}", first), fmt::format("rank {}", rank));
      if (!found.empty()) return name + ": " + found;
    }
  }
  for (auto& [key, both] : messages) {
    // Matched by tag, in any order.
    std::sort(both.sent.begin(), both.sent.end());
    std::sort(both.received.begin(), both.received.end());
    const auto& [name, from, to] = key;
    const std::string found = difference(both.sent, both.received, "sent", "received");
    if (!found.empty()) return fmt::format("{}: from rank {} to rank {}: {}", name, from, to, found);
  }
  return "";
}

}  // namespace mm::comm
