// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/pack/publish.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>

#include "common/error.h"
#include "trainer/data/index/version.h"

namespace mm::data {
namespace {

namespace fs = std::filesystem;

void fsync_folder(const fs::path& folder) {
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) throw system_error("pack: fsync folder " + folder.string(), errno);
}

// train-00000.tar, heldout-00000.tar
bool is_shard_name(std::string_view name) {
  if (name.starts_with("train-"))
    name.remove_prefix(6);
  else if (name.starts_with("heldout-"))
    name.remove_prefix(8);
  else
    return false;
  return name.size() == 9 && name.ends_with(".tar") &&
         std::all_of(name.begin(), name.begin() + 5, [](unsigned char c) { return std::isdigit(c) != 0; });
}

// What `mm-data index` wrote of such shards.
bool is_of_index(const fs::path& folder, std::string_view name) {
  if (name == "dataset.json") return !is_foreign(folder.string());
  if (name.ends_with(".mmidx")) return is_shard_name(name.substr(0, name.size() - 6));
  return (name.starts_with("dataset-") && name.ends_with(".json")) || name.starts_with(".mm-data-index.lock.");
}

// Whether there is something to exchange. Refuses what is not ours to remove.
bool holds_shards(const fs::path& folder, bool replace) {
  std::error_code error;
  if (!fs::exists(folder, error)) return false;
  if (!fs::is_directory(folder, error)) throw usage_error("pack: " + folder.string() + " is there already and is no folder");
  bool any = false;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    any = true;
    if (!replace) throw usage_error("pack: " + folder.string() + " is not empty; --replace replaces the shards in it");
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || !(is_shard_name(name) || is_of_index(folder, name)))
      throw usage_error("pack: " + entry.path().string() + " is no shard of a pack; the folder is left as it is");
  }
  return any;
}

}  // namespace

FolderInProgress::FolderInProgress(const std::string& final_path, bool replace) {
  fs::path final = fs::weakly_canonical(fs::absolute(final_path));
  if (!final.has_filename()) final = final.parent_path();
  if (!final.has_filename()) throw usage_error("pack: " + final_path + " cannot be made");
  exchange_ = holds_shards(final, replace);
  std::error_code error;
  fs::create_directories(final.parent_path(), error);
  if (error) throw usage_error("pack: make folder " + final.parent_path().string() + ": " + error.message());
  const fs::path working = final.parent_path() / ("." + final.filename().string() + ".packing");
  fs::create_directory(working, error);
  if (error) throw usage_error("pack: make folder " + working.string() + ": " + error.message());
  lock_ = UniqueFd(::open(working.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!lock_) throw system_error("pack: open folder " + working.string(), errno);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) throw usage_error("pack: another pack is writing " + final.string());
  for (const fs::directory_entry& left : fs::directory_iterator(working)) fs::remove_all(left.path());
  final_ = final.string();
  path_ = working.string();
}

FolderInProgress::~FolderInProgress() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

void FolderInProgress::publish() {
  fsync_folder(path_);
  if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, final_.c_str(), exchange_ ? RENAME_EXCHANGE : 0) != 0)
    throw system_error("pack: rename " + path_ + " to " + final_, errno);
  fsync_folder(fs::path(final_).parent_path());
  std::error_code ignored;
  if (exchange_) fs::remove_all(path_, ignored);
  path_.clear();
}

}  // namespace mm::data
