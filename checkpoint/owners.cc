// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/owners.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "checkpoint/hash.h"

namespace mm::checkpoint {
namespace {

// One view as its rank tells it to the others.
struct Shown {
  uint64_t key = 0;  // of name, role and box
  uint64_t bytes = 0;
};

Shown shown(const ConstView& v) {
  std::string text = v.name + '\0' + v.role + '\0';
  for (const Extents* extents : {&v.box.offset, &v.box.shape}) {
    text.append(reinterpret_cast<const char*>(extents->data()), extents->size() * sizeof(int64_t));
  }
  return {hash64(text.data(), text.size()), static_cast<uint64_t>(elements(v.box.shape)) * size_of(v.dtype)};
}

std::string text_of(const std::vector<Shown>& all) {
  return {reinterpret_cast<const char*>(all.data()), all.size() * sizeof(Shown)};
}

std::vector<Shown> parse(const std::string& text) {
  std::vector<Shown> out(text.size() / sizeof(Shown));
  if (!out.empty()) std::memcpy(out.data(), text.data(), out.size() * sizeof(Shown));
  return out;
}

struct Replicas {
  uint64_t bytes = 0;
  std::vector<int> ranks;
};

// key -> the rank that writes it.
std::unordered_map<uint64_t, int> choose(const std::vector<std::string>& shown_by_ranks) {
  std::unordered_map<uint64_t, Replicas> replicas;
  for (size_t rank = 0; rank < shown_by_ranks.size(); ++rank) {
    for (const Shown& s : parse(shown_by_ranks[rank])) {
      Replicas& r = replicas[s.key];
      r.bytes = s.bytes;
      if (r.ranks.empty() || r.ranks.back() != static_cast<int>(rank)) r.ranks.push_back(static_cast<int>(rank));
    }
  }
  std::vector<uint64_t> load(shown_by_ranks.size(), 0);
  std::vector<std::pair<uint64_t, uint64_t>> shared;  // bytes, key
  std::unordered_map<uint64_t, int> owner;
  for (const auto& [key, r] : replicas) {
    if (r.ranks.size() > 1) {
      shared.emplace_back(r.bytes, key);
      continue;
    }
    owner[key] = r.ranks[0];
    load[static_cast<size_t>(r.ranks[0])] += r.bytes;
  }
  std::sort(shared.rbegin(), shared.rend());  // large ones first
  for (const auto& [bytes, key] : shared) {
    const std::vector<int>& ranks = replicas[key].ranks;
    const int least = *std::min_element(ranks.begin(), ranks.end(), [&](int a, int b) {
      return std::pair(load[static_cast<size_t>(a)], a) < std::pair(load[static_cast<size_t>(b)], b);
    });
    owner[key] = least;
    load[static_cast<size_t>(least)] += bytes;
  }
  return owner;
}

}  // namespace

const std::vector<bool>& Owners::mine(Group& group, const std::vector<ConstView>& views) {
  std::vector<Shown> keys;
  for (const ConstView& v : views) keys.push_back(shown(v));
  const std::string text = text_of(keys);
  std::string digests;
  for (const std::string& d : group.all_gather(hash128(text))) digests += d;
  if (digests == digests_) return owned_;
  const std::unordered_map<uint64_t, int> owner = choose(group.all_gather(text));
  owned_.clear();
  for (const Shown& s : keys) owned_.push_back(owner.at(s.key) == group.rank());
  digests_ = digests;
  return owned_;
}

}  // namespace mm::checkpoint
