// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>

#include "checkpoint/folder.h"
#include "checkpoint/owners.h"
#include "checkpoint/step_reader.h"

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

}  // namespace

RunFolder::RunFolder(std::string run, bool create) : owners_(std::make_unique<Owners>()) {
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

std::string RunFolder::retain(Group& group, int keep) {
  std::string outcome = "+";
  if (group.rank() == 0) {
    try {
      int kept = 0;
      for (const StepInfo& s : list_steps(checkpoints_)) {
        if (kept >= std::max(keep, 1))
          remove_step(checkpoints_, s);
        else if (!s.bad && verify_step(s.path, s.step, true, [](uint64_t) {}).empty())
          ++kept;
      }
      remove_leftovers(checkpoints_);
    } catch (const io::Failure& e) {
      outcome = std::string("-") + e.what();
    }
  }
  outcome = group.all_gather(outcome)[0];
  return outcome.starts_with('-') ? outcome.substr(1) : "";
}

}  // namespace mm::checkpoint
