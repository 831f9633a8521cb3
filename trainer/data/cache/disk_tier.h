// SPDX-License-Identifier: Apache-2.0
// Cached blocks in a folder on a node's own disk, shared by the processes of one user there.
//
// The folder belongs to the user alone (0700, no link; it is refused otherwise) and holds a file for each block and the file
// LOCK. A block appears whole, under its name, by linkat of a file that had no name before: a process that is killed leaves nothing.
// LOCK begins with the number of bytes in the folder; who changes it holds a lock on these 8 bytes. Whoever fetches a block from
// shared storage holds a lock on one byte for it, so that others wait and then find it (single flight). Locks are of the open
// file (OFD): the kernel frees them when their holder dies, and who waits longer than a lease goes on without.
//
// Nobody depends on a cache: what is damaged is removed and counted, what cannot be written is said once, and then nothing more
// is; what cannot be read likewise.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/files.h"
#include "trainer/data/cache/block_file.h"
#include "trainer/data/cache/cipher.h"
#include "trainer/data/cache/next_use.h"

namespace mm::data {

class DiskTier {
 public:
  // `next_use` of a file's name. No cipher: blocks are kept as they are. Throws a usage Error for a folder that is not fit.
  DiskTier(std::string folder, int64_t limit, std::shared_ptr<const Cipher> cipher, ByNextUse<Hash128>::NextUse next_use);

  // The part of a block from `offset` on; false where the folder does not have it, or not well.
  bool read(const Hash128& key, int64_t offset, std::span<char> to);
  bool has(const Hash128& key);

  // Held by who fetches a block; others wait. Not owned: the lease has passed.
  class Flight {
   public:
    bool owned() const { return fd_.get() >= 0; }

   private:
    friend class DiskTier;
    UniqueFd fd_;
  };
  Flight fly(const Hash128& key, std::chrono::milliseconds lease);

  // Puts a block there, where it is needed sooner than what must go for it.
  void publish(const Hash128& key, std::string_view content, int64_t now);
  // Whether publish would.
  bool wants(const Hash128& key, int64_t size, int64_t now);

  Hash128 name_of(const Hash128& key) const { return cipher_ ? cipher_->name_of(key) : key; }
  int64_t used() const;  // bytes, of all blocks
  bool writable() const { return writes_; }
  int64_t damaged() const { return damaged_; }

 private:
  std::optional<BlockFile> open(const Hash128& key);
  void link(const Hash128& name, std::string_view file, int64_t now);
  bool make_room(int64_t bytes, const Hash128& name, int64_t now, int64_t& used);
  int64_t list(int64_t now);
  void drop(const Hash128& key, const char* why);
  void remove(const Hash128& name, int64_t& used);
  void stop_writing(const std::string& why);
  void stop_reading(const std::string& why);

  const std::string folder_;
  const int64_t limit_;
  const std::shared_ptr<const Cipher> cipher_;
  UniqueFd root_, count_;
  std::atomic<bool> reads_ = true, writes_ = true;
  std::atomic<int64_t> damaged_ = 0;
  std::mutex mutex_;
  ByNextUse<Hash128> known_;  // names of files that are there, as far as this process knows
};

}  // namespace mm::data
