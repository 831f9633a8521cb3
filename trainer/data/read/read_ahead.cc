// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/read/read_ahead.h"

#include <algorithm>
#include <cstring>

#include "common/error.h"

namespace mm::data {

std::vector<ReadAhead::Ticket> ReadAhead::fetch(std::span<const std::vector<Range>> samples) {
  std::vector<std::vector<std::string>> bytes(samples.size());
  std::vector<Request> requests;
  for (size_t s = 0; s < samples.size(); ++s) {
    bytes[s].resize(samples[s].size());
    for (size_t i = 0; i < samples[s].size(); ++i) {
      bytes[s][i].resize(static_cast<size_t>(samples[s][i].size));
      requests.push_back({samples[s][i].shard, samples[s][i].offset, bytes[s][i]});
    }
  }
  std::vector<Ticket> tickets(samples.size());
  try {
    next_->read(requests);
  } catch (const Error&) {
    return tickets;
  }
  const std::lock_guard lock(mutex_);
  for (size_t s = 0; s < samples.size(); ++s) {
    const uint64_t number = ++tickets_;
    std::vector<Key> keys;
    for (size_t i = 0; i < samples[s].size(); ++i) {
      keys.push_back({samples[s][i].shard, samples[s][i].offset});
      kept_ += samples[s][i].size;
      held_.emplace(keys.back(), Held{number, std::move(bytes[s][i])});
    }
    tickets[s] = Ticket(nullptr, [this, number, keys = std::move(keys)](void*) { forget(number, keys); });
  }
  return tickets;
}

void ReadAhead::forget(uint64_t ticket, const std::vector<Key>& keys) {
  const std::lock_guard lock(mutex_);
  for (const Key& key : keys) {
    const auto [begin, end] = held_.equal_range(key);
    const auto at = std::find_if(begin, end, [&](const auto& entry) { return entry.second.ticket == ticket; });
    if (at == end) continue;
    kept_ -= static_cast<int64_t>(at->second.bytes.size());
    held_.erase(at);
  }
}

void ReadAhead::read(std::span<const Request> requests) {
  std::vector<Request> rest;
  {
    const std::lock_guard lock(mutex_);
    for (const Request& request : requests) {
      const auto at = held_.find({request.shard, request.offset});
      if (at == held_.end() || at->second.bytes.size() != request.to.size()) {
        rest.push_back(request);
        continue;
      }
      std::memcpy(request.to.data(), at->second.bytes.data(), request.to.size());
      kept_ -= static_cast<int64_t>(request.to.size());
      held_.erase(at);
    }
  }
  if (!rest.empty()) next_->read(rest);
}

int64_t ReadAhead::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_;
}

}  // namespace mm::data
