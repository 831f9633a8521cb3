// SPDX-License-Identifier: Apache-2.0
// What a full cache lets go: the entry that is needed last (Belady 1966), since the order of samples is known.
//
// When each is needed next is kept, and asked anew when that time has passed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace mm::data {

template <class Key>
class ByNextUse {
 public:
  // The first time from `from` on at which it is needed; the largest int64 for never.
  using NextUse = std::function<int64_t(const Key&, int64_t from)>;
  explicit ByNextUse(NextUse next_use) : next_use_(std::move(next_use)) {}

  void add(const Key& key, int64_t now) {
    const int64_t at = next_use_(key, now);
    if (const auto [entry, added] = times_.try_emplace(key, at); !added) {
      order_.erase({entry->second, key});
      entry->second = at;
    }
    order_.insert({at, key});
  }
  void remove(const Key& key) {
    const auto entry = times_.find(key);
    if (entry == times_.end()) return;
    order_.erase({entry->second, key});
    times_.erase(entry);
  }
  bool contains(const Key& key) const { return times_.contains(key); }
  size_t size() const { return times_.size(); }
  void clear() { times_.clear(), order_.clear(); }
  int64_t next_use(const Key& key, int64_t from) const { return next_use_(key, from); }

  // The entry that is needed last, and when.
  std::optional<std::pair<Key, int64_t>> last(int64_t now) {
    while (!order_.empty() && order_.begin()->first < now) {
      const Key key = order_.begin()->second;
      add(key, now);
    }
    if (order_.empty()) return {};
    const auto& [at, key] = *order_.rbegin();
    return std::pair(key, at);
  }

 private:
  NextUse next_use_;
  std::map<Key, int64_t> times_;
  std::set<std::pair<int64_t, Key>> order_;
};

}  // namespace mm::data
