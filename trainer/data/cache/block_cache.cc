// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/cache/block_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "common/error.h"

namespace mm::data {
namespace {

constexpr std::chrono::seconds lease{30};        // after which a block that another fetches is read directly
constexpr size_t most_fetched_at_once = 4;       // blocks
constexpr int64_t most_ahead = int64_t{1} << 18;  // positions that a prefetch looks ahead, but never more than an epoch
constexpr int64_t never = std::numeric_limits<int64_t>::max();

}  // namespace

BlockCache::BlockCache(std::shared_ptr<const BlockUse> use, const CacheOptions& options, std::shared_ptr<ByteSource> next)
    : use_(std::move(use)),
      memory_limit_(options.memory),
      next_(std::move(next)),
      in_memory_([this](const BlockId& id, int64_t from) { return use_->next(id, from); }) {
  if (!options.folder.empty()) {
    const auto add_owners = [&](uint32_t shard) {
      const int64_t blocks = (use_->dataset().shards()[shard].size + block_bytes - 1) / block_bytes;
      for (int64_t b = 0; b < blocks; ++b) {
        const BlockId id{shard, static_cast<uint32_t>(b)};
        const Hash128 key = key_of(id);
        owners_[(options.cipher ? options.cipher->name_of(key) : key).high] = id;
      }
    };
    for (uint32_t shard = 0; shard < use_->dataset().shards().size(); ++shard) add_owners(shard);
    disk_ = std::make_unique<DiskTier>(options.folder, options.disk, options.cipher, [this](const Hash128& name, int64_t from) {
      const auto owner = owners_.find(name.high);
      return owner == owners_.end() ? never : use_->next(owner->second, from);
    });
  }
  if (options.prefetch) prefetcher_ = std::thread([this] { prefetch(); });
}

BlockCache::~BlockCache() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  moved_.notify_all();
  if (prefetcher_.joinable()) prefetcher_.join();
}

Hash128 BlockCache::key_of(const BlockId& id) const {
  if (const std::optional<Hash128> content = use_->dataset().block_hash(id.shard, id.block)) return *content;
  const Shard& shard = use_->dataset().shards()[id.shard];
  return hash_of(fmt::format("{} {} {} {} {}", shard.path, shard.inode, shard.size, shard.modified_ns, id.block));
}

int64_t BlockCache::size_of(const BlockId& id) const {
  return std::min(block_bytes, use_->dataset().shards()[id.shard].size - int64_t{id.block} * block_bytes);
}

void BlockCache::at(int64_t position) {
  {
    const std::lock_guard lock(mutex_);
    now_ = position;
  }
  moved_.notify_one();
}

CacheCounters BlockCache::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void BlockCache::count(int64_t CacheCounters::*what, int64_t by) {
  const std::lock_guard lock(mutex_);
  counters_.*what += by;
}

// ---------------------------------------------------------------- what is there
bool BlockCache::serve(const BlockId& id, const std::vector<Piece>& pieces) {
  std::shared_ptr<const std::string> content;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = memory_.find(id); found != memory_.end()) content = found->second;
  }
  if (content) {
    for (const Piece& p : pieces) std::memcpy(p.to.data(), content->data() + p.offset, p.to.size());
    count(&CacheCounters::memory_hits, static_cast<int64_t>(pieces.size()));
    return true;
  }
  if (!disk_) return false;
  const Hash128 key = key_of(id);
  for (const Piece& p : pieces)
    if (!disk_->read(key, p.offset, p.to)) return false;
  count(&CacheCounters::disk_hits, static_cast<int64_t>(pieces.size()));
  return true;
}

bool BlockCache::wanted(const BlockId& id) {
  int64_t now;
  {
    const std::lock_guard lock(mutex_);
    now = now_;
    if (memory_limit_ >= block_bytes) {
      if (memory_used_ + size_of(id) <= memory_limit_) return true;
      const auto last = in_memory_.last(now);
      if (!last || use_->next(id, now) < last->second) return true;
    }
  }
  return disk_ && disk_->wants(key_of(id), size_of(id), now);
}

void BlockCache::keep(const BlockId& id, std::shared_ptr<const std::string> content) {
  int64_t now;
  {
    const std::lock_guard lock(mutex_);
    now = now_;
    const auto size = static_cast<int64_t>(content->size());
    if (size <= memory_limit_ && !memory_.contains(id)) {
      const int64_t next_use = use_->next(id, now);
      while (memory_used_ + size > memory_limit_) {
        const auto last = in_memory_.last(now);
        if (!last || last->second <= next_use) break;
        const auto gone = memory_.find(last->first);
        memory_used_ -= static_cast<int64_t>(gone->second->size());
        memory_.erase(gone);
        in_memory_.remove(last->first);
      }
      if (memory_used_ + size <= memory_limit_) {
        memory_used_ += size;
        memory_[id] = content;
        in_memory_.add(id, now);
      }
    }
  }
  if (disk_) disk_->publish(key_of(id), *content, now);
}

// ---------------------------------------------------------------- fetching
BlockCache::Flight::~Flight() {
  if (cache == nullptr) return;
  {
    const std::lock_guard guard(cache->mutex_);
    cache->flying_.erase(id);
  }
  cache->landed_.notify_all();
}

// Nothing where another thread or process fetches the block, and does not land within `patience`.
std::unique_ptr<BlockCache::Flight> BlockCache::take_off(const BlockId& id, std::chrono::milliseconds patience) {
  auto flight = std::make_unique<Flight>();
  {
    std::unique_lock lock(mutex_);
    if (!landed_.wait_for(lock, patience, [&] { return !flying_.contains(id); })) return {};
    flying_.insert(id);
  }
  flight->cache = this;
  flight->id = id;
  if (disk_ && disk_->writable()) {
    flight->lock = disk_->fly(key_of(id), patience);
    if (!flight->lock.owned()) return {};
  }
  return flight;
}

void BlockCache::fetch(std::span<const BlockId> ids, const Pieces& pieces) {
  std::vector<std::string> contents(ids.size());
  std::vector<Request> requests;
  for (size_t i = 0; i < ids.size(); ++i) {
    contents[i].resize(static_cast<size_t>(size_of(ids[i])));
    requests.push_back({ids[i].shard, int64_t{ids[i].block} * block_bytes, contents[i]});
  }
  next_->read(requests);
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::optional<Hash128> known = use_->dataset().block_hash(ids[i].shard, ids[i].block);
    if (known && *known != hash_of(contents[i]))
      throw data_error(fmt::format("data: {}: offset {}: a block of the shard is not what its index says", use_->dataset().shards()[ids[i].shard].path,
                                   int64_t{ids[i].block} * block_bytes));
    count(&CacheCounters::fetched_bytes, static_cast<int64_t>(contents[i].size()));
    if (const auto wanted = pieces.find(ids[i]); wanted != pieces.end()) {
      for (const Piece& p : wanted->second) std::memcpy(p.to.data(), contents[i].data() + p.offset, p.to.size());
      count(&CacheCounters::misses, static_cast<int64_t>(wanted->second.size()));
    }
    keep(ids[i], std::make_shared<const std::string>(std::move(contents[i])));
  }
}

void BlockCache::read(std::span<const Request> requests) {
  Pieces pieces;
  for (const Request& r : requests)
    for (size_t done = 0; done < r.to.size();) {
      const int64_t at = r.offset + static_cast<int64_t>(done), block = at / block_bytes, offset = at % block_bytes;
      const size_t n = std::min(r.to.size() - done, static_cast<size_t>(block_bytes - offset));
      pieces[{r.shard, static_cast<uint32_t>(block)}].push_back({offset, r.to.subspan(done, n)});
      done += n;
    }
  std::vector<Request> direct;
  const auto read_directly = [&](const BlockId& id) {
    for (const Piece& p : pieces[id]) {
      direct.push_back({id.shard, int64_t{id.block} * block_bytes + p.offset, p.to});
      count(&CacheCounters::fetched_bytes, static_cast<int64_t>(p.to.size()));
    }
    count(&CacheCounters::misses, static_cast<int64_t>(pieces[id].size()));
  };
  std::vector<BlockId> missing, busy;
  for (const auto& [id, parts] : pieces) {
    if (serve(id, parts)) continue;
    if (wanted(id))
      missing.push_back(id);
    else
      read_directly(id);
  }
  // Those that nobody else fetches first, some at once. Nobody waits while he holds a block, so that no two wait for each other.
  for (size_t begin = 0; begin < missing.size();) {
    std::vector<BlockId> wave;
    std::vector<std::unique_ptr<Flight>> flights;
    for (; begin < missing.size() && wave.size() < most_fetched_at_once; ++begin) {
      const BlockId& id = missing[begin];
      std::unique_ptr<Flight> flight = take_off(id, std::chrono::milliseconds(0));
      if (!flight)
        busy.push_back(id);
      else if (!serve(id, pieces[id]))
        wave.push_back(id), flights.push_back(std::move(flight));
    }
    fetch(wave, pieces);
  }
  for (const BlockId& id : busy) {
    const std::unique_ptr<Flight> flight = take_off(id, lease);
    if (serve(id, pieces[id])) continue;
    if (flight)
      fetch({&id, 1}, pieces);
    else
      read_directly(id);
  }
  if (!direct.empty()) next_->read(direct);
}

BlockCache::Warm BlockCache::warm(const BlockId& id, std::chrono::milliseconds patience) {
  const auto there = [&] {
    {
      const std::lock_guard lock(mutex_);
      if (memory_.contains(id)) return true;
    }
    return disk_ && disk_->has(key_of(id));
  };
  if (there()) return Warm::there;
  if (!wanted(id)) return Warm::full;
  const std::unique_ptr<Flight> flight = take_off(id, patience);
  if (there()) return Warm::there;
  if (!flight) return Warm::busy;
  fetch({&id, 1}, {});
  return there() ? Warm::fetched : Warm::full;
}

// ---------------------------------------------------------------- prefetch
// Walks the order ahead of the stream, across epochs, as long as the next block is worth more than one that is kept.
void BlockCache::prefetch() {
  const NodeShare& share = use_->share();
  const int64_t ahead = std::min(most_ahead, use_->order().samples());
  int64_t next = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      moved_.wait(lock, [&] { return stopping_ || next < now_ + ahead; });
      if (stopping_) return;
      next = std::clamp(next, now_, now_ + ahead - 1);
    }
    const int64_t before = next;
    bool full = false;
    try {
      if (share.has(next))
        for (const BlockId& id : use_->blocks_of(use_->order()(next))) full = warm(id, std::chrono::milliseconds(0)) == Warm::full || full;
      ++next;
    } catch (const Error&) {
      // The stream meets it, and says so.
      full = true;
    }
    if (!full) continue;
    next = before;
    std::unique_lock lock(mutex_);
    moved_.wait(lock, [&, seen = now_] { return stopping_ || now_ != seen; });
    if (stopping_) return;
  }
}

}  // namespace mm::data
