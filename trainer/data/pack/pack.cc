// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/pack/pack.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "common/error.h"
#include "common/files.h"
#include "trainer/data/image/decode.h"
#include "trainer/data/pack/caption.h"
#include "trainer/data/pack/find_pictures.h"
#include "trainer/data/pack/ordered.h"
#include "trainer/data/pack/publish.h"

namespace mm::data {
namespace {

constexpr int64_t largest_file = int64_t{256} << 20;

struct Packed {
  std::string png, caption, rejected;  // `rejected`: the reason, where it is not empty
  bool held_out = false;
};

using Captions = std::optional<std::unordered_map<std::string, std::string>>;

std::string caption_for(const PictureFile& file, const Captions& captions) {
  if (!captions) return caption_of_path(file.relative);
  const auto found = captions->find(file.relative);
  if (found == captions->end()) throw data_error("no caption in the table");
  return found->second;
}

std::string read_picture(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw system_error("open", errno, exit_status::data);
  if (!S_ISREG(status.st_mode)) throw data_error("not a regular file");
  if (status.st_size > largest_file)
    throw data_error(fmt::format("{} bytes are more than the limit of {}", status.st_size, largest_file));
  return read_file(path);
}

Packed pack_one(const PictureFile& file, const PackOptions& options, const Captions& captions) {
  Packed packed;
  try {
    packed.caption = caption_for(file, captions);
    const std::string bytes = read_picture(file.path);
    // 2^64 is far above 10^4: the remainder is as good as uniform.
    packed.held_out = static_cast<double>(XXH3_64bits(bytes.data(), bytes.size()) % 10000) < options.holdout_percent * 100;
    packed.png = encode_png(decode_within(bytes, options.max_side));
  } catch (const Error& error) {
    if (error.status == exit_status::internal) throw;  // a read error of the disk is no bad picture
    packed.rejected = error.what();
  }
  return packed;
}

}  // namespace

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

namespace {

// How many results may wait for one slow picture: as many as fit a quarter of a gibibyte at their largest, where that is known.
size_t waiting_pictures(int max_side, int threads) {
  const auto least = static_cast<size_t>(threads) * 16;
  if (max_side <= 0) return least;
  const auto side = static_cast<size_t>(max_side);
  return std::clamp((size_t{256} << 20) / (side * side * 3), least, std::max(least, size_t{4096}));
}

}  // namespace

PackResult pack(const PackOptions& options, const PackProgress& progress) {
  Captions captions;
  if (options.caption != "path") captions = read_captions(options.caption);
  std::vector<PictureFile> files = find_pictures(options.sources);
  if (files.empty()) throw data_error(fmt::format("pack: no picture in {}", options.sources.front()));
  std::stable_sort(files.begin(), files.end(), [](const PictureFile& a, const PictureFile& b) {
    const uint64_t x = XXH3_64bits(a.key.data(), a.key.size()), y = XXH3_64bits(b.key.data(), b.key.size());
    return x != y ? x < y : a.key < b.key;
  });

  FolderInProgress folder(options.out, options.replace);
  ShardWriter train(folder.path(), "train", options.limits), heldout(folder.path(), "heldout", options.limits);
  PackResult result;
  result.pictures = static_cast<int64_t>(files.size());
  const int threads = options.threads > 0 ? options.threads : usable_cpus();
  in_order(
      files.size(), threads, waiting_pictures(options.max_side, threads),
      [&](size_t i) { return pack_one(files[i], options, captions); },
      [&](size_t i, Packed packed) {
        if (packed.rejected.empty()) {
          (packed.held_out ? heldout : train)
              .add(files[i].key, {{"png", std::move(packed.png)}, {"txt", std::move(packed.caption)}});
        } else {
          ++result.rejected;
          progress.rejected(files[i].path, packed.rejected);
        }
        progress.step(static_cast<int64_t>(i) + 1, result.pictures);
      });
  train.finish();
  heldout.finish();
  result.train = train.samples();
  result.heldout = heldout.samples();
  result.shards = train.shards() + heldout.shards();
  result.bytes = train.bytes() + heldout.bytes();
  if (result.train + result.heldout == 0)
    throw data_error(fmt::format("pack: none of {} pictures could be packed", result.pictures));
  folder.publish();
  return result;
}

}  // namespace mm::data
