// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>

#include "checkpoint/commit.h"
#include "checkpoint/epochs.h"
#include "checkpoint/folder.h"
#include "checkpoint/step_reader.h"
#include "checkpoint/tiers.h"

namespace mm::checkpoint {
namespace {

// Makes the folder and those above it, each one durable.
void make_path(const std::string& path) {
  if (path.empty() || io::is_folder(path)) return;
  const std::string parent = std::filesystem::path(path).parent_path().string();
  make_path(parent);
  io::make_folder(path);
  io::sync_folder(parent.empty() ? "." : parent);
}

enum class Standing { holds, does_not, given_up };

// Whether a load would have it, as far as can be told without reading the payload.
Standing standing_of(const StepInfo& s, const std::vector<Claim>& claims) {
  if (s.bad || !verify_step(s.path, s.step, true, [](uint64_t) {}).empty()) return Standing::does_not;
  return given_up(claims, read_manifest(s.path, s.step).epoch, s.step) ? Standing::given_up : Standing::holds;
}

}  // namespace

RunFolder::RunFolder(std::string run, bool create) : writer_(std::make_unique<Writer>()) {
  while (run.size() > 1 && run.back() == '/') run.pop_back();
  checkpoints_ = run + "/checkpoints";
  if (create)
    make_path(checkpoints_);
  else if (!io::is_folder(checkpoints_))
    throw usage_error("checkpoint: " + run + ": no run: it has no folder checkpoints");
}

RunFolder::~RunFolder() = default;

std::vector<StepInfo> RunFolder::list() const {
  return list_steps(checkpoints_);
}

std::vector<std::string> RunFolder::use_tiers(Group& group, const Tiers& tiers) {
  tiers_ = tiers;
  near_ = std::make_unique<NearCopies>(tiers, checkpoints_, group);
  return near_->problems();
}

void RunFolder::compress(Compression mode) {
  writer_->compression.set(mode);
}

SaveResult RunFolder::save(Group& group, int64_t step, const std::vector<ConstView>& tensors, const Facts& facts) {
  WriteOptions options;
  options.skeletons = &writer_->skeletons;
  const SaveTask task{step, without_replicas(writer_->owners, group, tensors), facts, "", true};
  return save_step(checkpoints_, *writer_, group, near_.get(), task, options);
}

void retain_steps(const std::string& checkpoints, const Keep& keep) {
  const std::vector<Claim> claims = list_claims(checkpoints);
  int kept = 0;
  for (const StepInfo& s : list_steps(checkpoints)) {
    const bool enough = kept >= std::max(keep.last, 1);
    const Standing standing = enough ? Standing::holds : standing_of(s, claims);
    if (!enough && standing == Standing::holds) {
      ++kept;
      continue;
    }
    const bool by_number = keep.every > 0 && s.step % keep.every == 0 && !s.bad && standing != Standing::given_up;
    if (s.pinned || by_number) continue;
    if (enough || standing == Standing::given_up) remove_step(checkpoints, s);
  }
  remove_leftovers(checkpoints);
}

std::string RunFolder::retain(Group& group, const Keep& keep) {
  std::string outcome = "+";
  if (group.rank() == 0) {
    try {
      retain_steps(checkpoints_, keep);
    } catch (const Error& e) {
      outcome = std::string("-") + e.what();
    }
  }
  outcome = group.broadcast(outcome);
  return outcome.starts_with('-') ? outcome.substr(1) : "";
}

}  // namespace mm::checkpoint
