// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/step_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/box.h"

namespace mm::checkpoint {
namespace {

// The bytes that a view and an entry share, as runs of the entry's payload.
void add_runs(const Entry& e, const View& v, std::vector<Run>& runs) {
  const auto shared = intersection(e.box, v.box);
  if (!shared) return;
  const auto width = static_cast<int64_t>(size_of(e.dtype));
  char* target = static_cast<char*>(v.data);
  for_each_run(e.box, v.box, *shared, [&](int64_t from, int64_t to, int64_t count) {
    runs.push_back({static_cast<uint64_t>(from * width), static_cast<uint64_t>(count * width), target + to * width});
  });
}

}  // namespace

StepReader::StepReader(const std::string& folder, Manifest manifest) : folder_(folder), manifest_(std::move(manifest)) {
  const int ranks = static_cast<int>(manifest_.files.size());
  for (int rank = 0; rank < ranks; ++rank) {
    files_.emplace_back(folder_ + "/" + rank_file_name(rank), manifest_.files[static_cast<size_t>(rank)],
                        Identity{manifest_.writer, manifest_.step, rank, ranks});
    const std::vector<Entry>& entries = files_.back().entries();
    for (size_t i = 0; i < entries.size(); ++i) {
      const Entry& e = entries[i];
      auto [tensor, is_new] = tensors_.try_emplace({e.name, e.role}, TensorParts{e.dtype, e.global_shape, {}});
      if (!is_new && (tensor->second.dtype != e.dtype || tensor->second.global_shape != e.global_shape)) {
        throw BadStep(fmt::format("checkpoint: {}: tensor {} ({}) has another shape or type than in the files before",
                                  files_.back().path(), e.name, e.role));
      }
      tensor->second.parts.emplace_back(static_cast<size_t>(rank), i);
    }
  }
  check_tiling();
}

void StepReader::check_tiling() const {
  for (const auto& [key, tensor] : tensors_) {
    std::vector<Box> boxes;
    for (const auto& [file, entry] : tensor.parts) boxes.push_back(files_[file].entries()[entry].box);
    const std::string error = tiling_error(tensor.global_shape, std::move(boxes));
    if (!error.empty()) throw BadStep(fmt::format("checkpoint: {}: tensor {} ({}): {}", folder_, key.first, key.second, error));
  }
}

void StepReader::check_structure(size_t file) {
  files_.at(file).check_structure(files_.at(file).open());
}

void StepReader::check_payload(size_t file, const std::function<void(uint64_t)>& progress) {
  RankFile& f = files_.at(file);
  const io::File open = f.open();
  f.check_structure(open);
  for (const Entry& e : f.entries()) f.check_payload(open, e, progress);
}

void StepReader::read(const std::vector<View>& views) {
  std::map<std::pair<size_t, size_t>, std::vector<Run>> plan;  // for each part that is needed
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
    for (const auto& part : t.parts) {
      const Entry& e = files_[part.first].entries()[part.second];
      if (intersection(e.box, v.box)) add_runs(e, v, plan[part]);
    }
  }
  for (auto part = plan.begin(); part != plan.end();) {
    RankFile& file = files_[part->first.first];
    const io::File open = file.open();
    file.check_structure(open);
    for (const size_t rank = part->first.first; part != plan.end() && part->first.first == rank; ++part) {
      std::vector<Run>& runs = part->second;
      std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.source < b.source; });
      file.read(open, file.entries()[part->first.second], runs);
    }
  }
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
