// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/index/make_index.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <optional>

#include "common/error.h"
#include "common/files.h"
#include "trainer/data/dataset.h"
#include "trainer/data/index/index_shard.h"
#include "trainer/data/index/lock.h"
#include "trainer/data/pack/ordered.h"
#include "trainer/data/shard_files.h"
#include "trainer/data/text/utf8.h"

namespace mm::data {
namespace {

namespace fs = std::filesystem;

struct Work {
  std::string folder;  // of the shards
  std::vector<std::string> names;
  bool whole_folder = false;
};

Work find_work(const std::vector<std::string>& paths) {
  Work work;
  std::error_code error;
  if (paths.size() == 1 && fs::is_directory(paths[0], error)) {
    work.whole_folder = true;
    work.folder = paths[0];
    for (fs::directory_iterator at(paths[0], error), end; !error && at != end; at.increment(error)) {
      const std::string name = at->path().filename().string();
      if (!name.starts_with('.') && name.ends_with(".tar") && at->is_regular_file()) work.names.push_back(name);
    }
    if (error) throw usage_error("index: list " + paths[0] + ": " + error.message());
    if (work.names.empty()) throw data_error("index: no shard (*.tar) in " + paths[0]);
  } else {
    for (const std::string& path : find_shards(paths)) {
      std::string folder = fs::path(path).parent_path().string();
      if (folder.empty()) folder = ".";
      if (work.folder.empty()) work.folder = folder;
      if (folder != work.folder)
        throw usage_error(fmt::format("index: the shards lie in two folders, {} and {}: index each by itself", work.folder, folder));
      work.names.push_back(fs::path(path).filename().string());
    }
  }
  for (const std::string& name : work.names) {
    bool repaired = false;
    repair_utf8(name, repaired);
    if (repaired) throw usage_error("index: the name of shard " + printable(name) + " is not UTF-8");
  }
  return work;
}

// The index of a shard, where it is there and fits.
std::optional<ShardIndex> fitting_index(const std::string& path, const Shard& shard) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  try {
    ShardIndex index = ShardIndex::open(path);
    if (index.content() && index.shard_size() == shard.size && index.shard_modified_ns() == shard.modified_ns) return index;
  } catch (const Error&) {  // damaged or of another version: made anew
  }
  return std::nullopt;
}

class Progress {
 public:
  Progress(const IndexOptions& options, int64_t shards, int64_t bytes) : tell_(options.progress), of_shards_(shards), of_bytes_(bytes) {}
  void add(int64_t shards, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    shards_ += shards, bytes_ += bytes;
    if (tell_) tell_(shards_, of_shards_, bytes_, of_bytes_);
  }

 private:
  std::mutex mutex_;
  const std::function<void(int64_t, int64_t, int64_t, int64_t)>& tell_;
  int64_t shards_ = 0, bytes_ = 0;
  const int64_t of_shards_, of_bytes_;
};

struct Indexed {
  IndexedShard shard;
  bool reused = false;
};

Indexed index_one(const std::string& folder, const std::string& out, const std::string& name, const FolderLock& lock, Progress& progress) {
  Shard shard;
  const std::string path = folder + "/" + name;
  const UniqueFd fd = open_shard(path, shard);
  std::optional<ShardIndex> index = fitting_index(index_path(out, name), shard);
  const bool reused = index.has_value();
  if (reused) {
    progress.add(1, shard.size);
  } else {
    index = hash_shard(shard, fd.get(), [&](int64_t bytes) { progress.add(0, bytes); });
    Shard now;
    open_shard(path, now);
    if (now.size != shard.size || now.modified_ns != shard.modified_ns || now.inode != shard.inode)
      throw data_error("index: " + path + ": changed while it was indexed");
    lock.check();
    write_file_durably(index_path(out, name), index->bytes());
    progress.add(1, 0);
  }
  return {{name, shard.size, shard.modified_ns, index->samples(), index->structure(), *index->content()}, reused};
}

// What a writer that was killed left in the middle of a write.
void remove_temporaries(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.find(".mmidx.tmp") != std::string::npos || name.starts_with(".dataset-")) fs::remove(at->path(), error);
  }
}

bool same_shards(const Version& a, const Version& b) {
  return a.id == b.id && std::equal(a.shards.begin(), a.shards.end(), b.shards.begin(), b.shards.end(),
                                    [](const IndexedShard& x, const IndexedShard& y) { return x.modified_ns == y.modified_ns; });
}

}  // namespace

IndexResult make_index(const IndexOptions& options) {
  const Work work = find_work(options.paths);
  IndexResult result;
  result.folder = options.out.empty() ? work.folder : options.out;
  std::error_code error;
  fs::create_directories(result.folder, error);
  if (error) throw usage_error("index: create " + result.folder + ": " + error.message());
  if (is_foreign(result.folder))
    throw usage_error("index: " + result.folder + "/dataset.json is not one of mm-data's: give the index a folder of its own with --out");
  FolderLock lock(result.folder, "mm-data-index", {.purpose = "mm-data index", .lease = options.lease, .waiting = options.waiting});
  remove_temporaries(result.folder);
  const std::optional<Version> parent = newest_version(result.folder);

  int64_t bytes = 0;
  for (const std::string& name : work.names) bytes += static_cast<int64_t>(fs::file_size(work.folder + "/" + name, error));
  Progress progress(options, static_cast<int64_t>(work.names.size()), bytes);
  std::vector<IndexedShard> shards;
  in_order(
      work.names.size(), options.jobs, static_cast<size_t>(options.jobs) * 4,
      [&](size_t i) { return index_one(work.folder, result.folder, work.names[i], lock, progress); },
      [&](size_t, const Indexed& one) {
        ++(one.reused ? result.reused : result.hashed);
        if (!one.reused) result.hashed_bytes += one.shard.size;
        shards.push_back(one.shard);
      });
  if (parent && !work.whole_folder)
    for (const IndexedShard& shard : parent->shards)
      if (std::find(work.names.begin(), work.names.end(), shard.name) == work.names.end() && fs::exists(work.folder + "/" + shard.name, error)) {
        shards.push_back(shard);
        ++result.kept;
      }
  result.version = make_version(std::move(shards), parent);
  if (parent && same_shards(*parent, result.version)) {
    result.version = *parent;
    return result;
  }
  lock.check();
  if (!publish_version(result.folder, result.version))
    throw Error(exit_status::internal, fmt::format("index: {}: another writer has published version number {}: run it again", result.folder, result.version.number));
  result.published = true;
  return result;
}

}  // namespace mm::data
