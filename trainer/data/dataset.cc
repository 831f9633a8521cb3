// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>
#include <glob.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "common/error.h"
#include "common/log.h"
#include "trainer/data/index/index_shard.h"
#include "trainer/data/index/version.h"
#include "trainer/data/read/shard_reader.h"
#include "trainer/data/shard_files.h"
#include "trainer/data/text/utf8.h"

namespace mm::data {
namespace {

struct GlobResult {
  glob_t found{};
  ~GlobResult() { ::globfree(&found); }
};

// Of many thousands of paths: plain text.
std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}
std::string name_of(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

// The first {a,b} of a pattern written out, and so on.
std::vector<std::string> without_braces(const std::string& pattern) {
  const size_t open = pattern.find('{');
  const size_t close = open == std::string::npos ? open : pattern.find('}', open);
  if (close == std::string::npos) return {pattern};
  std::vector<std::string> all;
  for (size_t at = open + 1; at <= close;) {
    const size_t end = std::min(pattern.find(',', at), close);
    for (std::string& each : without_braces(pattern.substr(0, open) + pattern.substr(at, end - at) + pattern.substr(close + 1)))
      all.push_back(std::move(each));
    at = end + 1;
  }
  return all;
}

// The shards of one version that a pattern names, whether they are there or not.
std::vector<std::string> shards_of_version(const std::vector<std::string>& patterns, const DatasetOptions& options) {
  std::vector<std::string> paths;
  for (const std::string& pattern : patterns)
    for (const std::string& plain : without_braces(pattern)) {
      const std::string folder = folder_of(plain), name = name_of(plain);
      const Version version = find_version(options.index.empty() ? folder : options.index, options.version);
      for (const IndexedShard& shard : version.shards)
        if (::fnmatch(name.c_str(), shard.name.c_str(), FNM_PERIOD) == 0)
          paths.push_back(plain.find('/') != std::string::npos ? folder + "/" + shard.name : shard.name);
    }
  if (paths.empty()) throw data_error(fmt::format("data: no shard of version {} matches {}", options.version, fmt::join(patterns, " ")));
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

std::optional<Version> newest_or_none(const std::string& folder) {
  try {
    return newest_version(folder);
  } catch (const Error& error) {
    log::warn("{}; the shards are scanned", error.what());
    return std::nullopt;
  }
}

// True where the shard is as it was when it was indexed; describes it then.
bool fits(const IndexedShard& known, const std::string& path, Shard& shard) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  const int64_t modified_ns = int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  if (status.st_size != known.size || modified_ns != known.modified_ns) return false;
  shard = {path, known.size, modified_ns, status.st_ino};
  return true;
}

}  // namespace

std::vector<std::string> find_shards(const std::vector<std::string>& patterns) {
  std::vector<std::string> paths;
  if (patterns.empty()) throw data_error("data: no shards are named");
  for (const std::string& pattern : patterns) {
    GlobResult result;
    const int code = ::glob(pattern.c_str(), GLOB_ERR | GLOB_BRACE, nullptr, &result.found);
    if (code == GLOB_NOMATCH) throw data_error(fmt::format("data: no shard matches {}", pattern));
    if (code != 0) throw data_error(fmt::format("data: {}: a folder on the way cannot be read", pattern));
    paths.insert(paths.end(), result.found.gl_pathv, result.found.gl_pathv + result.found.gl_pathc);
  }
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

// The indexes of the shards, those of dataset.json mapped when they are first asked for.
struct Dataset::Indexes {
  struct OfShard {
    std::atomic<const ShardIndex*> ready = nullptr;
    std::string file;  // empty: scanned
    int64_t samples = 0;
    uint64_t structure = 0;
  };

  void keep(OfShard& shard, ShardIndex index) {
    const std::unique_lock lock(mutex);
    for (const auto& [id, name] : index.part_names())
      if (names.try_emplace(id, name).first->second != name)
        throw data_error(fmt::format("data: the parts '{}' and '{}' cannot be told apart by the hash of their names", printable(names[id]), printable(name)));
    if (shard.ready.load(std::memory_order_relaxed) == nullptr)
      shard.ready.store(&all.emplace_back(std::move(index)), std::memory_order_release);
  }

  std::deque<OfShard> shards;
  std::unordered_map<std::string, std::optional<Version>> versions;  // by folder; while the data set is opened
  std::shared_mutex mutex;                                           // guards what follows
  std::deque<ShardIndex> all;
  std::unordered_map<uint64_t, std::string> names;  // of parts
};

Dataset::Dataset() : first_{0}, indexes_(std::make_unique<Indexes>()) {}

Dataset Dataset::open_one(const std::string& path) {
  Dataset dataset;
  Shard& shard = dataset.shards_.emplace_back();
  const UniqueFd fd = open_shard(path, shard);
  ShardIndex index = scan_shard(shard, fd.get());
  dataset.first_.push_back(index.samples());
  dataset.sources_ = {{0, index.samples(), 1}};
  Indexes::OfShard& of_shard = dataset.indexes_->shards.emplace_back();
  of_shard.structure = index.structure();
  dataset.indexes_->keep(of_shard, std::move(index));
  dataset.source_ = std::make_shared<ShardReader>(dataset.shards_);
  return dataset;
}

Dataset::Dataset(const DatasetOptions& options) : Dataset() {
  const auto paths_of = [&](const std::vector<std::string>& patterns) {
    return options.version.empty() ? find_shards(patterns) : shards_of_version(patterns, options);
  };
  if (options.mix.empty()) add_source(paths_of(options.shards), 1, options);
  for (const auto& [pattern, weight] : options.mix) add_source(paths_of({pattern}), weight, options);
  indexes_->versions.clear();
  source_ = std::make_shared<ShardReader>(shards_);
}

Dataset::~Dataset() = default;
Dataset::Dataset(Dataset&&) noexcept = default;

void Dataset::add_source(const std::vector<std::string>& paths, double weight, const DatasetOptions& options) {
  const int64_t first = samples();
  for (const std::string& path : paths) {
    const std::string folder = options.index.empty() ? folder_of(path) : options.index;
    const auto [at, added] = indexes_->versions.try_emplace(folder);
    if (added) at->second = options.version.empty() ? newest_or_none(folder) : find_version(folder, options.version);
    const IndexedShard* known = at->second ? find_shard(*at->second, name_of(path)) : nullptr;
    Shard& shard = shards_.emplace_back();
    Indexes::OfShard& of_shard = indexes_->shards.emplace_back();
    if (known != nullptr && fits(*known, path, shard)) {
      of_shard.file = index_path(folder, known->name);
      of_shard.samples = known->samples;
      of_shard.structure = known->structure;
    } else {
      if (!options.version.empty())
        throw data_error(fmt::format("data: {}: changed since version {} was made", path, options.version));
      if (known != nullptr) log::warn("data: {}: changed since it was indexed; it is scanned", path);
      const UniqueFd fd = open_shard(path, shard);
      ShardIndex index = scan_shard(shard, fd.get());
      of_shard.samples = index.samples();
      of_shard.structure = index.structure();
      indexes_->keep(of_shard, std::move(index));
    }
    first_.push_back(samples() + of_shard.samples);
  }
  sources_.push_back({first, samples() - first, weight});
  if (sources_.back().samples == 0)
    throw data_error(fmt::format("data: no sample in {}", paths.size() == 1 ? paths[0] : fmt::format("{} shards", paths.size())));
}

const ShardIndex& Dataset::index_of(uint32_t id) const {
  Indexes::OfShard& shard = indexes_->shards[id];
  if (const ShardIndex* ready = shard.ready.load(std::memory_order_acquire)) return *ready;
  ShardIndex index = ShardIndex::open(shard.file);
  if (index.structure() != shard.structure || index.samples() != shard.samples || index.shard_size() != shards_[id].size)
    throw data_error("data: index " + shard.file + ": not that of the shard in this version of the data set");
  indexes_->keep(shard, std::move(index));
  return *shard.ready.load(std::memory_order_acquire);
}

uint32_t Dataset::shard_id_of(int64_t sample) const {
  return static_cast<uint32_t>(std::upper_bound(first_.begin(), first_.end(), sample) - first_.begin()) - 1;
}

std::string_view Dataset::key(int64_t sample) const {
  const uint32_t shard = shard_id_of(sample);
  return index_of(shard).key(sample - first_[shard]);
}

std::span<const Part> Dataset::parts(int64_t sample) const {
  const uint32_t shard = shard_id_of(sample);
  return index_of(shard).parts(sample - first_[shard]);
}

const std::string& Dataset::part_name(const Part& part) const {
  const std::shared_lock lock(indexes_->mutex);
  return indexes_->names.at(part.name);
}

std::optional<Hash128> Dataset::block_hash(uint32_t shard, int64_t block) const {
  const std::span<const Hash128> blocks = index_of(shard).blocks();
  if (block < 0 || block >= static_cast<int64_t>(blocks.size())) return std::nullopt;
  return blocks[static_cast<size_t>(block)];
}

bool Dataset::indexed(uint32_t shard) const {
  return !indexes_->shards[shard].file.empty();
}

std::string Dataset::read(int64_t sample, const Part& part) const {
  std::string content(static_cast<size_t>(part.size), '\0');
  const Request request{shard_id_of(sample), part.offset, content};
  source_->read({&request, 1});
  return content;
}

std::string Dataset::fingerprint() const {
  int64_t bytes = 0;
  std::string lines;
  for (size_t i = 0; i < shards_.size(); ++i) {
    bytes += shards_[i].size;
    lines += fmt::format("{} {} {:016x}\n", name_of(shards_[i].path), shards_[i].size, indexes_->shards[i].structure);
  }
  return fmt::format("{} shards, {} samples, {} bytes, index {:016x}", shards_.size(), samples(), bytes, XXH3_64bits(lines.data(), lines.size()));
}

}  // namespace mm::data
