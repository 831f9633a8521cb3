// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/cache/disk_tier.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/error.h"
#include "common/log.h"
#include "trainer/data/cache/folder.h"
#include "trainer/data/read/faults.h"

namespace mm::data {
namespace {

constexpr int64_t largest_front = 2 << 10;     // of a block's file, before its pieces
constexpr off_t first_flight = off_t{1} << 32;  // bytes of LOCK from here on stand for blocks

}  // namespace

DiskTier::DiskTier(std::string folder, int64_t limit, std::shared_ptr<const Cipher> cipher, ByNextUse<Hash128>::NextUse next_use)
    : folder_(std::move(folder)), limit_(limit), cipher_(std::move(cipher)), root_(open_private_folder(folder_)), count_(open_cache_lock(root_.get(), folder_)), known_(std::move(next_use)) {
  CacheLedger ledger(root_.get(), folder_);
  ledger.used = list(0);
  ledger.write();
}

// The bytes of all blocks in the folder. What is in it is known afterwards. Under the ledger's lock.
int64_t DiskTier::list(int64_t now) {
  int64_t bytes = 0;
  known_.clear();
  for (const CachedFile& file : list_cached_files(root_.get(), folder_)) {
    bytes += file.bytes;
    known_.add(file.name, now);
  }
  return bytes;
}

void DiskTier::stop_writing(const std::string& why) {
  if (writes_.exchange(false)) log::warn("data: cache: {}: {}; nothing more is put there", folder_, why);
}

void DiskTier::stop_reading(const std::string& why) {
  if (reads_.exchange(false)) log::warn("data: cache: {}: {}; shards are read directly from now on", folder_, why);
}

// ---------------------------------------------------------------- reading
std::optional<BlockFile> DiskTier::open(const Hash128& key) {
  if (!reads_) return {};
  const std::string name = hex(name_of(key));
  UniqueFd fd(::openat(root_.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) {
    if (errno != ENOENT) stop_reading(system_error("open " + name, errno).what());
    return {};
  }
  BlockFile::Bad why;
  std::optional<BlockFile> block = BlockFile::open(std::move(fd), folder_ + "/" + name, key, cipher_.get(), why);
  if (!block || block->encrypted() != (cipher_ != nullptr)) {
    drop(key, "is not the block that its name says");
    return {};
  }
  return block;
}

bool DiskTier::read(const Hash128& key, int64_t offset, std::span<char> to) {
  try {
    const std::optional<BlockFile> block = open(key);
    if (!block) return false;
    if (block->read(offset, to, cipher_.get())) return true;
    drop(key, "is damaged");
  } catch (const Error& error) {
    stop_reading(error.what());
  }
  return false;
}

void DiskTier::drop(const Hash128& key, const char* why) {
  const std::lock_guard lock(mutex_);
  const Hash128 name = name_of(key);
  ++damaged_;
  log::warn("data: cache: {}/{}: {}; removed", folder_, hex(name), why);
  CacheLedger ledger(root_.get(), folder_);
  remove(name, ledger.used);
  ledger.write();
}

// Under the ledger's lock.
void DiskTier::remove(const Hash128& name, int64_t& used) {
  const std::string text = hex(name);
  struct stat status {};
  if (::fstatat(root_.get(), text.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && ::unlinkat(root_.get(), text.c_str(), 0) == 0)
    used = std::max<int64_t>(0, used - status.st_size);
  known_.remove(name);
}

bool DiskTier::has(const Hash128& key) {
  return reads_ && ::faccessat(root_.get(), hex(name_of(key)).c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

// ---------------------------------------------------------------- single flight
DiskTier::Flight DiskTier::fly(const Hash128& key, std::chrono::milliseconds lease) {
  Flight flight;
  try {
    UniqueFd fd = open_cache_lock(root_.get(), folder_);
    const off_t place = first_flight + static_cast<off_t>(key.low >> 2);  // two blocks on one byte merely wait for each other
    if (!lock_cache_bytes(fd.get(), place, 1, lease)) return flight;
    flight.fd_ = std::move(fd);
  } catch (const Error& error) {
    stop_writing(error.what());
  }
  return flight;
}

// ---------------------------------------------------------------- writing
bool DiskTier::wants(const Hash128& key, int64_t size, int64_t now) {
  if (!writes_ || size > limit_) return false;
  const std::lock_guard lock(mutex_);
  const Hash128 name = name_of(key);
  int64_t used = 0;  // perhaps of a moment ago
  if (::pread(count_.get(), &used, sizeof used, 0) == sizeof used && used + size + largest_front <= limit_) return true;
  const auto last = known_.last(now);
  return !last || known_.next_use(name, now) < last->second;
}

void DiskTier::publish(const Hash128& key, std::string_view content, int64_t now) {
  if (!writes_) return;
  const std::lock_guard lock(mutex_);
  try {
    link(name_of(key), encode_block(key, content, cipher_.get()), now);
  } catch (const Error& error) {
    stop_writing(error.what());
  }
}

void DiskTier::link(const Hash128& name, std::string_view file, int64_t now) {
  const std::string text = hex(name), path = folder_ + "/" + text;
  const auto bytes = static_cast<int64_t>(file.size());
  if (bytes > limit_) return;
  CacheLedger ledger(root_.get(), folder_);
  if (!make_room(bytes, name, now, ledger.used)) return ledger.write();
  ledger.write();
  UniqueFd fd(::openat(root_.get(), ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  if (!fd) throw system_error("create a file without a name in " + folder_, errno);
  for (size_t done = 0; done < file.size();) {
    const Fault fault = ask_fault({Op::cache_write, path, static_cast<int64_t>(done), file.size() - done});
    const ssize_t n = fault.error != 0 ? -1 : ::write(fd.get(), file.data() + done, std::min(file.size() - done, fault.at_most));
    const int reason = fault.error != 0 ? fault.error : errno;
    if (n < 0 && reason == EINTR) continue;
    if (n < 0) throw system_error("write " + path, reason);
    done += static_cast<size_t>(n);
  }
  const std::string unnamed = fmt::format("/proc/self/fd/{}", fd.get());
  if (::linkat(AT_FDCWD, unnamed.c_str(), root_.get(), text.c_str(), AT_SYMLINK_FOLLOW) != 0) {
    if (errno == EEXIST) return;
    throw system_error("link " + path, errno);
  }
  known_.add(name, now);
  ledger.used += bytes;
  ledger.write();
}

// Under the ledger's lock: removes what is needed last until `bytes` fit; false where all that is there is needed sooner than the
// new one.
bool DiskTier::make_room(int64_t bytes, const Hash128& name, int64_t now, int64_t& used) {
  bool listed = false;
  const int64_t next_use = known_.next_use(name, now);
  while (used + bytes > limit_) {
    const auto last = known_.last(now);
    if (!last) {
      // Others have put there what this process does not know.
      if (std::exchange(listed, true)) return false;
      used = list(now);
      continue;
    }
    if (last->second <= next_use) return false;
    remove(last->first, used);
  }
  return true;
}

int64_t DiskTier::used() const {
  return CacheLedger(root_.get(), folder_).used;
}

}  // namespace mm::data
