// SPDX-License-Identifier: Apache-2.0
// A cache of shards' blocks before their files: in this process's memory, then in a folder on the node's own disk.
//
// A block is known by the hash of its content where the data set has an index, else by its shard's identity and its number. It
// is fetched whole, once for the threads of the process and the processes of the node, and checked: against the index when it is
// fetched, against what was written when it is found. What is needed soonest stays (next_use.h); where neither tier wants a
// block, what was asked for is read directly. Whatever happens to the cache, a read gives the shard's bytes or the shard's error.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "trainer/data/cache/block_use.h"
#include "trainer/data/cache/disk_tier.h"
#include "trainer/data/cache/next_use.h"
#include "trainer/data/read/byte_source.h"

namespace mm::data {

struct CacheOptions {
  int64_t memory = 0;  // bytes of this process; 0: none
  int64_t disk = 0;    // bytes of the folder
  std::string folder;  // empty: none
  std::shared_ptr<const Cipher> cipher;  // none: blocks are written as they are
  bool prefetch = true;                  // ahead of what the stream reads
  bool on() const { return memory > 0 || !folder.empty(); }
};

// Of parts of samples.
struct CacheCounters {
  int64_t memory_hits = 0, disk_hits = 0, misses = 0;
  int64_t fetched_bytes = 0;  // from the shards, in whole blocks or directly
};

class BlockCache : public ByteSource {
 public:
  // What is read from `next` where the cache does not have it. Throws a usage Error for a folder that is not fit.
  BlockCache(std::shared_ptr<const BlockUse> use, const CacheOptions& options, std::shared_ptr<ByteSource> next);
  ~BlockCache() override;
  void read(std::span<const Request> requests) override;
  // The position that the stream reads next.
  void at(int64_t position);
  // Fetches the block where a tier wants it and none has it; what became of it. `patience`: how long another may take to fetch it.
  enum class Warm { there, fetched, busy, full };
  Warm warm(const BlockId& id, std::chrono::milliseconds patience);
  CacheCounters counters() const;
  const DiskTier* disk() const { return disk_.get(); }

 private:
  struct Piece {
    int64_t offset;  // in the block
    std::span<char> to;
  };
  using Pieces = std::map<BlockId, std::vector<Piece>>;
  // Of a block that is being fetched, for the other threads and processes.
  struct Flight {
    BlockCache* cache = nullptr;
    BlockId id;
    DiskTier::Flight lock;
    ~Flight();
  };
  Hash128 key_of(const BlockId& id) const;
  int64_t size_of(const BlockId& id) const;
  bool serve(const BlockId& id, const std::vector<Piece>& pieces);
  bool wanted(const BlockId& id);
  std::unique_ptr<Flight> take_off(const BlockId& id, std::chrono::milliseconds patience);
  void fetch(std::span<const BlockId> ids, const Pieces& pieces);
  void keep(const BlockId& id, std::shared_ptr<const std::string> content);
  void count(int64_t CacheCounters::*what, int64_t by);
  void prefetch();

  const std::shared_ptr<const BlockUse> use_;
  const int64_t memory_limit_;
  const std::shared_ptr<ByteSource> next_;
  std::unordered_map<uint64_t, BlockId> owners_;  // of files of the folder, by the first half of their names
  mutable std::mutex mutex_;  // guards what follows, but the disk tier
  std::condition_variable landed_, moved_;
  std::map<BlockId, std::shared_ptr<const std::string>> memory_;
  int64_t memory_used_ = 0;
  ByNextUse<BlockId> in_memory_;
  std::set<BlockId> flying_;
  int64_t now_ = 0;
  bool stopping_ = false;
  CacheCounters counters_;
  std::unique_ptr<DiskTier> disk_;
  std::thread prefetcher_;
};

}  // namespace mm::data
