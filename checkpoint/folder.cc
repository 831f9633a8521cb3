// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/folder.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "checkpoint/hash.h"
#include "checkpoint/io.h"

namespace mm::checkpoint {

std::string step_name(int64_t step) {
  return fmt::format("step-{:07}", step);
}

std::optional<int64_t> step_of_name(const std::string& name) {
  constexpr std::string_view prefix = "step-";
  if (name.compare(0, prefix.size(), prefix) != 0) return std::nullopt;
  int64_t step = -1;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + prefix.size(), end, step);
  if (error != std::errc() || rest != end || step < 0 || step_name(step) != name) return std::nullopt;
  return step;
}

std::string private_name(int64_t step, const std::string& writer) {
  return "." + step_name(step) + "." + writer;
}

std::string new_writer() {
  uint64_t token = 0;
  if (::getrandom(&token, sizeof token, 0) != sizeof token) throw io::Failure("random writer name", errno);
  return fmt::format("{:016x}", token);
}

std::string run_key(const std::string& run) {
  return hash128(std::filesystem::absolute(run).lexically_normal().string()).substr(0, 16);
}

std::vector<StepInfo> list_steps(const std::string& checkpoints) {
  std::vector<StepInfo> steps;
  for (const std::string& name : io::list_folder(checkpoints)) {
    const auto step = step_of_name(name);
    const std::string path = checkpoints + "/" + name;
    if (step && io::is_folder(path)) steps.push_back({*step, path, io::exists(path + "/.bad"), io::exists(path + "/.pinned")});
  }
  std::sort(steps.begin(), steps.end(), [](const StepInfo& a, const StepInfo& b) { return a.step > b.step; });
  return steps;
}

std::string mark_bad(const StepInfo& step, const std::string& reason) {
  try {
    io::write_file(step.path + "/.bad", reason + "\n");
    io::sync_folder(step.path);
    return "";
  } catch (const io::Failure& e) {
    return e.number == EEXIST ? "" : e.what();
  }
}

void set_pinned(const StepInfo& step, bool pinned) {
  const std::string mark = step.path + "/.pinned";
  if (pinned == io::exists(mark)) return;
  if (pinned)
    io::write_file(mark, "");
  else
    io::remove_tree(mark);
  io::sync_folder(step.path);
}

void remove_step(const std::string& checkpoints, const StepInfo& step) {
  const std::string trash = checkpoints + "/.trash-" + step_name(step.step) + "." + new_writer();
  io::rename(step.path, trash);
  io::sync_folder(checkpoints);
  io::remove_tree(trash);
}

void remove_leftovers(const std::string& checkpoints) {
  try {
    for (const std::string& name : io::list_folder(checkpoints)) {
      if (name.starts_with(".step-") || name.starts_with(".trash-") || name.starts_with(".claim-"))
        io::remove_tree(checkpoints + "/" + name);
    }
  } catch (const io::Failure&) {
    // The next save tries again.
  }
}

}  // namespace mm::checkpoint
