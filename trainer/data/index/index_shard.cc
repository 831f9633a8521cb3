// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/index/index_shard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "common/error.h"
#include "trainer/data/shard_files.h"
#include "trainer/data/tar.h"

namespace mm::data {
namespace {

// Serves reads at growing offsets from blocks that are read one after another. A block is hashed when a read begins behind it:
// all members whose headers begin in it are known then, and so whose content it holds.
class HashingReader {
 public:
  HashingReader(const Shard& shard, int fd, const std::function<void(int64_t)>& progress) : shard_(shard), fd_(fd), progress_(progress) {
    XXH3_64bits_reset(state_);
  }
  ~HashingReader() { XXH3_freeState(state_); }
  HashingReader(const HashingReader&) = delete;
  HashingReader& operator=(const HashingReader&) = delete;

  void expect(TarMember member) { members_.push_back(std::move(member)); }

  size_t read_at(int64_t offset, char* to, size_t length) {
    while (!window_.empty() && (first_ + 1) * block_bytes <= offset) release();
    while (first_ * block_bytes + block_bytes <= offset) load(), release();  // passed over
    const int64_t end = std::min(offset + static_cast<int64_t>(length), shard_.size);
    while (loaded_end() < end) load();
    size_t done = 0;
    while (offset < end) {
      const std::string& block = window_[static_cast<size_t>(offset / block_bytes - first_)];
      const int64_t at = offset % block_bytes, n = std::min(end - offset, block_bytes - at);
      std::memcpy(to + done, block.data() + at, static_cast<size_t>(n));
      done += static_cast<size_t>(n);
      offset += n;
    }
    return done;
  }

  ShardIndex finish() {
    while (loaded_end() < shard_.size) {
      load();
      release();
    }
    while (!window_.empty()) release();
    ShardFacts facts{shard_.size, shard_.modified_ns, {}, std::move(blocks_)};
    facts.content = hash_of({reinterpret_cast<const char*>(facts.blocks.data()), facts.blocks.size() * sizeof(Hash128)});
    return ShardIndex::build(members_, hashes_, facts);
  }

 private:
  int64_t loaded_end() const {
    return std::min((first_ + static_cast<int64_t>(window_.size())) * block_bytes, shard_.size);
  }

  void load() {
    const int64_t at = (first_ + static_cast<int64_t>(window_.size())) * block_bytes;
    std::string block = std::move(spare_);
    block.resize(static_cast<size_t>(std::min(block_bytes, shard_.size - at)));
    if (read_shard(shard_, fd_, at, block.data(), block.size()) < block.size())
      throw data_error(fmt::format("data: {}: offset {}: cut short while it was indexed", shard_.path, at));
    progress_(static_cast<int64_t>(block.size()));
    window_.push_back(std::move(block));
  }

  void release() {
    const std::string& block = window_.front();
    const int64_t begin = first_ * block_bytes, end = begin + static_cast<int64_t>(block.size());
    blocks_.push_back(hash_of(block));
    while (hashes_.size() < members_.size()) {
      const TarMember& member = members_[hashes_.size()];
      const int64_t from = std::max(member.offset, begin), to = std::min(member.offset + member.size, end);
      if (from < to) XXH3_64bits_update(state_, block.data() + (from - begin), static_cast<size_t>(to - from));
      if (member.offset + member.size > end) break;
      hashes_.push_back(XXH3_64bits_digest(state_));
      XXH3_64bits_reset(state_);
    }
    spare_ = std::move(window_.front());
    window_.pop_front();
    ++first_;
  }

  const Shard& shard_;
  const int fd_;
  const std::function<void(int64_t)>& progress_;
  XXH3_state_t* const state_ = XXH3_createState();  // of the first member that is not hashed yet
  std::vector<TarMember> members_;
  std::vector<uint64_t> hashes_;
  std::vector<Hash128> blocks_;
  std::deque<std::string> window_;  // blocks from number first_ on
  int64_t first_ = 0;
  std::string spare_;
};

}  // namespace

ShardIndex scan_shard(const Shard& shard, int fd) {
  const std::vector<TarMember> members =
      list_tar("data: " + shard.path, shard.size,
               [&](int64_t offset, char* to, size_t length) { return read_shard(shard, fd, offset, to, length); });
  return ShardIndex::build(members, {}, {shard.size, shard.modified_ns, {}, {}});
}

ShardIndex hash_shard(const Shard& shard, int fd, const std::function<void(int64_t bytes)>& progress) {
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  HashingReader reader(shard, fd, progress);
  walk_tar("data: " + shard.path, shard.size,
           [&](int64_t offset, char* to, size_t length) { return reader.read_at(offset, to, length); },
           [&](TarMember member) { reader.expect(std::move(member)); });
  return reader.finish();
}

}  // namespace mm::data
