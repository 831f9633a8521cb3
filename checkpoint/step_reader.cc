// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/step_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <tuple>

#include "checkpoint/box.h"
#include "checkpoint/hash.h"
#include "checkpoint/threads.h"

namespace mm::checkpoint {
namespace {

constexpr size_t most_open_files = 64;

// Calls `add(block, run)` for the bytes that a view and an entry share, as runs within blocks of the entry's payload.
template <class F>
void for_each_block_run(const Entry& e, const View& v, F&& add) {
  const auto shared = intersection(e.box, v.box);
  if (!shared) return;
  const Blocks blocks = e.blocks();
  const auto width = static_cast<int64_t>(size_of(e.dtype));
  char* target = static_cast<char*>(v.data);
  for_each_run(e.box, v.box, *shared, [&](int64_t from, int64_t to, int64_t count) {
    auto source = static_cast<uint64_t>(from * width);
    char* at = target + to * width;
    for (auto left = static_cast<uint64_t>(count * width); left > 0;) {
      const uint64_t block = blocks.at(source), n = std::min(left, blocks.span(block).end - source);
      add(block, Run{source, n, at});
      source += n;
      at += n;
      left -= n;
    }
  });
}

}  // namespace

StepReader::StepReader(const std::string& folder, Manifest manifest)
    : StepReader(folder, std::move(manifest),
                 [&](int rank) { return std::vector{place_of_file(folder + "/" + rank_file_name(rank))}; }) {}

StepReader::StepReader(const std::string& name, Manifest manifest, const std::function<std::vector<Place>(int)>& places)
    : folder_(name), manifest_(std::move(manifest)) {
  const int ranks = static_cast<int>(manifest_.files.size());
  for (int rank = 0; rank < ranks; ++rank) {
    files_.push_back(std::make_unique<RankFile>(places(rank), manifest_.files[static_cast<size_t>(rank)],
                                                Identity{manifest_.writer, manifest_.step, rank, ranks}));
    const std::vector<Entry>& entries = files_.back()->entries();
    for (size_t i = 0; i < entries.size(); ++i) {
      const Entry& e = entries[i];
      auto [tensor, is_new] = tensors_.try_emplace({e.name, e.role}, TensorParts{e.dtype, e.global_shape, {}});
      if (!is_new && (tensor->second.dtype != e.dtype || tensor->second.global_shape != e.global_shape)) {
        throw BadStep(fmt::format("checkpoint: {}: tensor {} ({}) has another shape or type than in the files before",
                                  files_.back()->name(), e.name, e.role));
      }
      tensor->second.parts.emplace_back(static_cast<size_t>(rank), i);
    }
  }
  check_tiling();
}

void StepReader::check_tiling() const {
  for (const auto& [key, tensor] : tensors_) {
    std::vector<Box> boxes;
    for (const auto& [file, entry] : tensor.parts) boxes.push_back(files_[file]->entries()[entry].box);
    const std::string error = tiling_error(tensor.global_shape, std::move(boxes));
    if (!error.empty()) throw BadStep(fmt::format("checkpoint: {}: tensor {} ({}): {}", folder_, key.first, key.second, error));
  }
}

void StepReader::check_structure(size_t file) {
  files_.at(file)->check_structure();
  files_[file]->release();
}

// Files are opened a few at a time.
void StepReader::read_blocks(const std::vector<Block>& blocks, const std::function<void(uint64_t)>& progress) {
  for (size_t begin = 0; begin < blocks.size();) {
    std::set<size_t> open;
    size_t end = begin;
    for (; end < blocks.size(); ++end) {
      const size_t file = blocks[end].file;
      if (open.contains(file)) continue;
      if (open.size() == most_open_files) break;
      open.insert(file);
      files_[file]->check_structure();
    }
    std::atomic<size_t> next = begin;
    std::atomic<bool> failed = false;
    std::mutex mutex;
    const auto fetch = [&](size_t i) {
      if (i >= end) return;
      files_[blocks[i].file]->will_need(entry(blocks[i].file, blocks[i].entry), blocks[i].number);
    };
    const int threads = static_cast<int>(std::min<size_t>(static_cast<size_t>(threads_), end - begin));
    on_threads(threads, [&] {
      std::vector<char> scratch;
      for (size_t i = next++; i < end && !failed; i = next++) {
        const Block& b = blocks[i];
        fetch(i + static_cast<size_t>(threads));
        const Entry& e = entry(b.file, b.entry);
        try {
          files_[b.file]->read_block(e, b.number, b.runs, scratch);
        } catch (...) {
          failed = true;
          throw;
        }
        const std::lock_guard lock(mutex);
        const Range span = e.blocks().span(b.number);
        progress(span.end - span.begin);
      }
    });
    for (const size_t file : open) files_[file]->release();
    begin = end;
  }
}

void StepReader::check_payload(size_t file, const std::function<void(uint64_t)>& progress) {
  check_structure(file);
  std::vector<Block> blocks;
  const std::vector<Entry>& entries = files_.at(file)->entries();
  for (size_t i = 0; i < entries.size(); ++i) {
    for (uint64_t number = 0; number < entries[i].blocks().count(); ++number) blocks.push_back({file, i, number, {}});
  }
  read_blocks(blocks, progress);
}

void StepReader::read(const std::vector<View>& views) {
  std::map<std::tuple<size_t, size_t, uint64_t>, size_t> place;  // of each block that is needed
  std::vector<Block> blocks;
  for (const View& v : views) {
    const std::string who = fmt::format("checkpoint: {}: tensor {} ({})", folder_, v.name, v.role);
    const auto found = tensors_.find({v.name, v.role});
    if (found == tensors_.end()) throw usage_error(who + ": the step has none");
    const TensorParts& t = found->second;
    if (t.dtype != v.dtype || t.global_shape != v.global_shape) {
      throw usage_error(fmt::format("{}: it is {} {}, not {} {}", who, name_of(t.dtype), text_of(t.global_shape),
                                    name_of(v.dtype), text_of(v.global_shape)));
    }
    if (!lies_within(v.box, v.global_shape)) {
      throw usage_error(fmt::format("{}: asked for box {} at {} of shape {}", who, text_of(v.box.shape), text_of(v.box.offset),
                                    text_of(v.global_shape)));
    }
    if (elements(v.box.shape) == 0) continue;
    for (const auto& [file, number] : t.parts) {
      for_each_block_run(entry(file, number), v, [&](uint64_t block, const Run& run) {
        const auto [at, is_new] = place.try_emplace({file, number, block}, blocks.size());
        if (is_new) blocks.push_back({file, number, block, {}});
        blocks[at->second].runs.push_back(run);
      });
    }
  }
  std::sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) {
    return std::tuple(a.file, a.entry, a.number) < std::tuple(b.file, b.entry, b.number);
  });
  read_blocks(blocks, [](uint64_t) {});
}

std::vector<std::string> verify_step(const std::string& folder, int64_t step, bool quick,
                                     const std::function<void(uint64_t)>& progress) {
  std::vector<std::string> problems;
  auto note = [&](auto&& check) {
    try {
      check();
    } catch (const BadStep& e) {
      problems.emplace_back(e.what());
    } catch (const Error& e) {
      problems.emplace_back(e.what());
    }
  };
  note([&] {
    StepReader reader(folder, step);
    for (size_t file = 0; file < reader.files(); ++file) {
      note([&] {
        if (quick)
          reader.check_structure(file);
        else
          reader.check_payload(file, progress);
      });
    }
  });
  return problems;
}

}  // namespace mm::checkpoint
