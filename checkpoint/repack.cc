// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/repack.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "checkpoint/box.h"
#include "checkpoint/commit.h"
#include "checkpoint/dtype.h"
#include "checkpoint/folder.h"
#include "common/safetensors/file.h"
#include "common/version.h"

namespace mm::checkpoint {
namespace {

// A shard's boxes in memory of its own, one after the other.
struct Shard {
  std::vector<View> views;
  std::vector<char> memory;
};

// Bytes [begin, end) of all tensors, one after the other; cut between elements.
Shard shard_of(const std::vector<TensorMeta>& tensors, uint64_t begin, uint64_t end) {
  Shard shard;
  uint64_t at = 0, bytes = 0;
  for (const TensorMeta& t : tensors) {
    const auto width = static_cast<uint64_t>(size_of(t.dtype));
    const uint64_t n = t.bytes();
    // The first byte of an element decides where it goes; a tensor without elements goes with what follows it.
    const uint64_t from = begin > at ? std::min(n, (begin - at + width - 1) / width * width) : 0;
    const uint64_t to = end > at ? std::min(n, (end - at + width - 1) / width * width) : 0;
    const bool holds_empty = n == 0 && at >= begin && at < end;
    if (from < to || holds_empty) {
      for (Box& b : boxes_of_range(t.shape, static_cast<int64_t>(from / width), static_cast<int64_t>(to / width))) {
        shard.views.push_back({t.name, t.role, t.dtype, t.shape, std::move(b), nullptr});
      }
      bytes += to - from;
    }
    at += n;
  }
  shard.memory.resize(bytes);
  char* p = shard.memory.data();
  for (View& v : shard.views) {
    v.data = p;
    p += static_cast<size_t>(elements(v.box.shape)) * size_of(v.dtype);
  }
  return shard;
}

std::vector<ConstView> to_save(const Shard& shard) {
  std::vector<ConstView> out;
  for (const View& v : shard.views) out.push_back({v.name, v.role, v.dtype, v.global_shape, v.box, v.data});
  return out;
}

// Fills a view from a file that holds its whole tensor.
void read_box(const safetensors::File& file, const safetensors::TensorInfo& info, const View& v) {
  const Box whole{Extents(v.global_shape.size(), 0), v.global_shape};
  if (elements(v.box.shape) == 0) return;
  const auto width = static_cast<int64_t>(size_of(v.dtype));
  char* to = static_cast<char*>(v.data);
  for_each_run(whole, v.box, v.box, [&](int64_t source, int64_t target, int64_t count) {
    file.read(info, static_cast<uint64_t>(source * width), static_cast<uint64_t>(count * width), to + target * width);
  });
}

}  // namespace

Repacked repack(const std::string& run, int64_t step, const Facts& facts, std::vector<TensorMeta> tensors, const Packing& packing,
                const std::function<void(const std::vector<View>&)>& read, const std::function<void(uint64_t)>& progress) {
  const int ranks = packing.ranks;
  WriteOptions options;
  options.compress = packing.compress;
  if (packing.compress) options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const std::string checkpoints = RunFolder(run, true).path();
  uint64_t total = 0;
  for (const TensorMeta& t : tensors) total += t.bytes();
  Writer writer;
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  Manifest manifest{step, "", version_line("mm-train"), now, 0, 0, facts, {}};
  const std::string folder = start_save(checkpoints, writer, step, manifest.writer);
  manifest.epoch = writer.epoch;
  try {
    for (int rank = 0; rank < ranks; ++rank) {
      const uint64_t begin = total / static_cast<uint64_t>(ranks) * static_cast<uint64_t>(rank);
      const uint64_t end =
          rank + 1 == ranks ? total + 1 : total / static_cast<uint64_t>(ranks) * static_cast<uint64_t>(rank + 1);
      const Shard shard = shard_of(tensors, begin, end);
      read(shard.views);
      manifest.files.push_back(
          write_rank_file(folder + "/" + rank_file_name(rank), {manifest.writer, step, rank, ranks}, to_save(shard), options));
      progress(shard.memory.size());
    }
    io::sync_folder(folder);
    commit_files(checkpoints, folder, manifest);
  } catch (...) {
    remove_leftovers(checkpoints);
    throw;
  }
  remove_leftovers(checkpoints);
  return {tensors.size(), total, manifest.stored(), ranks};
}

Repacked reshard(StepReader& step, const std::string& run, const Packing& packing, const std::function<void(uint64_t)>& progress) {
  std::vector<TensorMeta> tensors;
  for (const auto& [key, t] : step.tensors()) tensors.push_back({key.first, key.second, t.dtype, t.global_shape});
  const Manifest& m = step.manifest();
  return repack(
      run, m.step, m.facts, std::move(tensors), packing, [&](const std::vector<View>& views) { step.read(views); }, progress);
}

Repacked import_safetensors(const std::string& folder, const std::string& run, int64_t step, const Packing& packing,
                            const std::function<void(uint64_t)>& progress) {
  const safetensors::ModelFolder<safetensors::File> files(folder);
  std::vector<TensorMeta> tensors;
  for (const auto& [name, file] : files.tensors()) {
    const safetensors::TensorInfo& info = file->tensors().at(name);
    const auto dtype = dtype_of_safetensors(info.dtype);
    if (!dtype) throw usage_error(fmt::format("{}: tensor {}: dtype {} is unknown", file->path(), name, info.dtype));
    tensors.push_back({name, "param", *dtype, info.shape});
  }
  Facts facts;
  for (const char* name : {"config", "preprocessor_config"}) {
    const std::string path = folder + "/" + name + ".json";
    constexpr uint64_t most_bytes = 16 << 20;
    if (io::exists(path)) facts[name == std::string("config") ? "model_config" : name] = io::read_file(path, most_bytes);
  }
  const auto read = [&](const std::vector<View>& views) {
    for (const View& v : views) {
      const safetensors::File& file = *files.tensors().at(v.name);
      read_box(file, file.tensors().at(v.name), v);
    }
  };
  return repack(run, step, facts, std::move(tensors), packing, read, progress);
}

}  // namespace mm::checkpoint
