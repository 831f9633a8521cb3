// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/cache/scrub.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "common/error.h"
#include "trainer/data/cache/block_file.h"
#include "trainer/data/cache/folder.h"

namespace mm::data {
namespace {

enum class State { sound, encrypted, damaged };

State state_of(int root, const std::string& folder, const CachedFile& file) {
  const std::string name = hex(file.name);
  UniqueFd fd(::openat(root, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) throw system_error("data: cache: open " + folder + "/" + name, errno);
  BlockFile::Bad why;
  const std::optional<BlockFile> block = BlockFile::open(std::move(fd), folder + "/" + name, std::nullopt, nullptr, why);
  if (why == BlockFile::Bad::no_key) return State::encrypted;
  if (!block || block->key() != file.name) return State::damaged;
  std::string content(static_cast<size_t>(block->size()), '\0');
  return block->read(0, content, nullptr) ? State::sound : State::damaged;
}

}  // namespace

ScrubResult scrub_cache(const std::string& folder, bool all, const std::function<void(const std::string&)>& told) {
  if (::access((folder + "/" + cache_lock_name).c_str(), F_OK) != 0) throw usage_error("data: cache: " + folder + ": no folder of a cache");
  const UniqueFd root = open_private_folder(folder);
  CacheLedger ledger(root.get(), folder);
  ScrubResult result;
  for (const CachedFile& file : list_cached_files(root.get(), folder)) {
    const State state = all ? State::sound : state_of(root.get(), folder, file);
    if (state == State::damaged) told(hex(file.name));
    if (all || state == State::damaged) {
      if (::unlinkat(root.get(), hex(file.name).c_str(), 0) != 0 && errno != ENOENT)
        throw system_error("data: cache: remove " + folder + "/" + hex(file.name), errno);
      ++result.removed;
      continue;
    }
    ++result.blocks;
    result.bytes += file.bytes;
    result.encrypted += state == State::encrypted ? 1 : 0;
  }
  ledger.used = result.bytes;
  ledger.write();
  if (!all) return result;
  if (::unlinkat(root.get(), cache_lock_name, 0) != 0) throw system_error("data: cache: remove " + folder + "/" + cache_lock_name, errno);
  if (::rmdir(folder.c_str()) != 0 && errno != ENOTEMPTY && errno != EBUSY) throw system_error("data: cache: remove " + folder, errno);
  return result;
}

}  // namespace mm::data
